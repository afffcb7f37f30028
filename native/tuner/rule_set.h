// SPDX-License-Identifier: Apache-2.0
//
// The rules of a configuration that apply to one communicator, ready for lookup.
#ifndef NCCLTUNE_TUNER_RULE_SET_H_
#define NCCLTUNE_TUNER_RULE_SET_H_

#include <array>
#include <cstddef>
#include <vector>

#include "abi/tuner_types.h"
#include "tuner/lookup_table.h"
#include "tuner/rule.h"

namespace nccltune::tuner {

struct Scale {
  size_t nodes = 0;
  size_t ranks = 0;
};

// What became of each rule of the file.
struct RuleCounts {
  size_t total = 0;
  size_t applied = 0;
  size_t other_scale = 0;    // for other numbers of nodes or ranks
  size_t untold = 0;         // asks for registered buffers, which this interface does not tell
  size_t shadowed = 0;       // earlier rows with its condition and pair cover its whole range
  size_t with_channels = 0;  // of the applied ones
  size_t with_chunk = 0;     // of the applied ones
};

class RuleSet {
 public:
  RuleSet() = default;

  // `tells_registered`: whether NCCL tells this interface about registered buffers (v4 and newer).
  RuleSet(const std::vector<Rule>& rules, Scale scale, bool tells_registered);

  const RuleCounts& counts() const { return counts_; }

  // Null for a number that is no collective of a tuner.
  const LookupTable* TableOf(int collective) const {
    const auto index = static_cast<size_t>(collective);
    return index < tables_.size() ? &tables_[index] : nullptr;
  }

 private:
  std::array<LookupTable, abi::kNumCollectives> tables_;
  RuleCounts counts_;
};

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_RULE_SET_H_
