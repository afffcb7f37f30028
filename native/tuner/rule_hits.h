// SPDX-License-Identifier: Apache-2.0
// How many calls of this process each row of a configuration decided. `nccltune status` reads the
// numbers while the job runs.
//
// The reader may be of another release (src/nccltune/native/rule_hits.py). So existing words keep
// their place and meaning; any other change needs a new kHitsLayout.
#ifndef NCCLTUNE_TUNER_RULE_HITS_H_
#define NCCLTUNE_TUNER_RULE_HITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/shared_page.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

inline constexpr const char* kHitsName = "nccltune-tuner-hits";
inline constexpr std::string_view kHitsMagic = "ncclhits";
inline constexpr uint64_t kHitsLayout = 1;
inline constexpr uint32_t kMostCountedLines = uint32_t{1} << 16U;

struct HitsBlock {
  Word magic = 0;  // written last: it marks a complete page
  Word layout = kHitsLayout;
  Word page_bytes = 0;
  Word hits_bytes = 0;  // offset of the counters
  Word lines = 0;       // the last line with a counter
  Word pid = 0;         // getpid() of the writer; a forked child has the memfd too
  Word content_hash = 0;
  Word reserved = 0;
  SharedText<256> path;
};
static_assert(offsetof(HitsBlock, path) == 64);
static_assert(sizeof(HitsBlock) == 320);

// One page for a file. Its counters are indexed by line; counter 0 has the calls that no row
// decided.
class RuleHits {
 public:
  // Rows after line kMostCountedLines are not counted. Throws only std::bad_alloc.
  RuleHits(std::string_view path, uint64_t content_hash, uint32_t last_line);

  // Counts a call. `chosen` is null if no rule decided it.
  void Count(const Candidate* chosen) {
    const uint32_t line = chosen == nullptr ? 0 : chosen->order;
    if (line <= lines_) hits_[line].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  uint32_t lines_;
  SharedPage page_;
  Word* hits_;
};

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_RULE_HITS_H_
