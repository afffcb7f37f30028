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

// Numbers of rules in the file, by the way they were used.
struct RuleCounts {
  size_t total = 0;
  size_t applied = 0;
  size_t other_scale = 0;  // for another number of nodes or ranks
  // with a condition on registered buffers, but this interface version does not pass whether
  // buffers are registered
  size_t unknown_registration = 0;
  size_t shadowed = 0;       // covered completely by earlier rows with the same condition and pair
  size_t with_channels = 0;  // applied rules that set the number of channels
  size_t with_chunk = 0;     // applied rules that set the chunk size
  size_t on_registration = 0;  // applied rules with a condition on registered buffers
};

class RuleSet {
 public:
  RuleSet() = default;

  // `passes_registered`: the interface version passes whether buffers are registered (v4 and
  // newer).
  RuleSet(const std::vector<Rule>& rules, Scale scale, bool passes_registered);

  const RuleCounts& counts() const { return counts_; }

  // Returns the rules of a collective, or null for a collective that NCCL does not ask tuners
  // about.
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
