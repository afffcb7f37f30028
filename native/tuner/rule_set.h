// SPDX-License-Identifier: Apache-2.0
// The rules of a configuration that apply to one communicator, ready for lookup.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "abi/tuner.h"
#include "common/shared_page.h"

namespace nccltune::tuner {

inline constexpr int kAny = -1;

// NCCL's MAXCHANNELS since 2.25, the most channels that it can run. It was 32 before, but a
// configuration may be read by any version.
inline constexpr int kMostChannels = 64;

// Largest chunk size that a row may set. NCCL limits a chunk to a buffer, which is smaller.
inline constexpr uint32_t kLargestChunk = uint32_t{1} << 30U;

// One row of a configuration. Nodes, ranks, pipe_ops and registered may be kAny, which matches
// every value.
struct Rule {
  uint64_t min_bytes = 0;  // inclusive; bytes are counted as NCCL's tuner interface counts them
  uint64_t max_bytes = 0;  // inclusive
  uint32_t line = 0;       // line number in the file, counted from 1
  int32_t nodes = kAny;
  int32_t ranks = kAny;
  int32_t pipe_ops = kAny;
  uint32_t chunk_bytes = 0;  // 0: NCCL's choice
  int8_t registered = kAny;
  uint8_t collective = 0;  // abi::TunedCollective
  uint8_t algorithm = 0;   // abi::Algorithm
  uint8_t protocol = 0;    // abi::Protocol
  uint8_t channels = 0;    // 0: NCCL's choice

  bool operator==(const Rule&) const = default;
};

// NCCL rounds a chunk down to a multiple of this size (ncclProtoGrainSize, 2.30). A smaller chunk
// becomes 0.
inline constexpr std::array<size_t, abi::kNumProtocols> kGrainBytes = {16, 1920, 512};

// NCCL checks a chunk against the protocol's ordinary buffer only. NVLS and CollNet have their own
// buffers: NCCL's proposal fits them, but a larger chunk may overrun them.
inline bool MayRaiseChunk(int algorithm) {
  return algorithm == abi::kTree || algorithm == abi::kRing || algorithm == abi::kPat;
}

inline bool IsSafeChunk(size_t wanted, size_t proposed, int algorithm, int protocol) {
  if (protocol < 0 || protocol >= abi::kNumProtocols) return false;
  if (wanted < kGrainBytes[static_cast<size_t>(protocol)]) return false;
  return wanted <= proposed || MayRaiseChunk(algorithm);
}

// Finds the rules to try for a call, in order, by a binary search in arrays that are built once per
// communicator.

// The choice of a rule. `order` is the line number of the rule; the first usable rule is applied.
struct Candidate {
  uint32_t order;
  uint8_t algorithm;
  uint8_t protocol;
  uint8_t channels;  // 0: NCCL's choice
};
static_assert(sizeof(Candidate) == 8);

// The rules of one collective that apply to one communicator.
//
// The range of sizes is cut at each size where the set of covering rules changes; the pieces are
// called segments. For every pair of algorithm and protocol, a segment holds the first rule in file
// order that covers the segment. A later rule with the same pair can never be used, because whether
// NCCL can run a pair does not depend on the row. So a segment has at most 21 candidates, and n
// rules make at most 2n+1 segments. Each condition on pipe_ops or registered has its own group of
// segments.
class LookupTable {
 public:
  LookupTable() = default;

  // Takes the rules of one collective in file order. Sets used[i] for each rule that at least one
  // call can reach.
  LookupTable(const std::vector<Rule>& rules, std::vector<bool>* used);

  bool empty() const { return groups_.empty(); }
  size_t segments() const { return starts_.size(); }

  // Returns whether any reachable rule has a chunk size.
  bool has_chunks() const { return !chunks_.empty(); }

  // Returns the chunk size of a candidate's rule; 0 if there is none or `candidate` is null.
  uint32_t ChunkOf(const Candidate* candidate) const {
    if (candidate == nullptr || chunks_.empty()) return 0;
    return chunks_[static_cast<size_t>(candidate - candidates_.data())];
  }

  // Returns the first candidate in file order that `usable(algorithm, protocol)` accepts, or null.
  // `registered` is kAny if the interface version does not pass it; then rules with a condition on
  // registered buffers do not match.
  template <typename Usable>
  const Candidate* Find(uint64_t bytes, int pipe_ops, int registered, const Usable& usable) const {
    if (groups_.empty()) return nullptr;
    if (groups_.size() == 1 && groups_.front().IsUnconditional()) [[likely]] {
      return FirstUsable(CandidatesOf(groups_.front(), bytes), usable);
    }
    return FindAmongGroups(bytes, pipe_ops, registered, usable);
  }

 private:
  struct Group {
    int32_t pipe_ops;
    int32_t registered;
    uint32_t first_segment;
    uint32_t segments;

    bool IsUnconditional() const { return pipe_ops == kAny && registered == kAny; }
  };

  struct Range {
    const Candidate* begin = nullptr;
    const Candidate* end = nullptr;
  };

  void AddGroup(const std::vector<Rule>& rules, const std::vector<uint32_t>& members,
                std::vector<bool>* used);
  const Group* FindGroup(int pipe_ops, int registered) const;

  Range CandidatesOf(const Group& group, uint64_t bytes) const {
    // Every group starts with a segment at 0. The number of steps depends only on the table, and
    // each step is a conditional move, so no branch can be mispredicted.
    const uint64_t* const first = starts_.data() + group.first_segment;
    const uint64_t* segment = first;
    for (size_t left = group.segments; left > 1;) {
      const size_t half = left / 2;
      segment += segment[half] <= bytes ? half : 0;
      left -= half;
    }
    const size_t index = group.first_segment + static_cast<size_t>(segment - first);
    return {candidates_.data() + chains_[index], candidates_.data() + chains_[index + 1]};
  }

  template <typename Usable>
  static const Candidate* FirstUsable(Range range, const Usable& usable) {
    for (const Candidate* c = range.begin; c != range.end; ++c) {
      if (usable(c->algorithm, c->protocol)) return c;
    }
    return nullptr;
  }

  template <typename Usable>
  const Candidate* FindAmongGroups(uint64_t bytes, int pipe_ops, int registered,
                                   const Usable& usable) const {
    const std::array<const Group*, 4> matching = {
        FindGroup(kAny, kAny), registered == kAny ? nullptr : FindGroup(kAny, registered),
        FindGroup(pipe_ops, kAny), registered == kAny ? nullptr : FindGroup(pipe_ops, registered)};
    const Candidate* best = nullptr;
    for (const Group* group : matching) {
      if (group == nullptr) continue;
      const Candidate* found = FirstUsable(CandidatesOf(*group, bytes), usable);
      if (found != nullptr && (best == nullptr || found->order < best->order)) best = found;
    }
    return best;
  }

  std::vector<uint64_t> starts_;  // first size of each segment, ascending within a group
  std::vector<uint32_t>
      chains_;  // index in candidates_ at which each segment starts; one more for the end
  std::vector<Candidate> candidates_;  // in file order within a segment
  std::vector<Group> groups_;          // sorted by (pipe_ops, registered)
  // The chunk size of each candidate; empty if no rule has a chunk size. The array is separate,
  // because few files have chunk sizes.
  std::vector<uint32_t> chunks_;
};

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
  size_t for_pat = 0;        // applied rules for PAT
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

// How many calls of this process each row of a configuration decided. `nccltune status` reads the
// numbers while the job runs.
//
// The reader may be of another release (src/nccltune/native/rule_hits.py). So existing words keep
// their place and meaning; any other change needs a new kHitsLayout.

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
