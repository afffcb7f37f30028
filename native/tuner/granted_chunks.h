// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TUNER_GRANTED_CHUNKS_H_
#define NCCLTUNE_TUNER_GRANTED_CHUNKS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"
#include "tuner/lookup_table.h"

namespace nccltune::tuner {

// The chunk size that goes with the newest decision about each collective of one communicator.
//
// getChunkSize is told the share of one channel, not the size of the call (NCCL 2.30 to 2.32), so
// no rule can be found by it. But NCCL asks getCollInfo about every call of a group before it cuts
// any of them into chunks, so the newest decision is one about this group, and the same on every
// rank whatever went before. Words are atomic only so that calls from several threads are no race.
class GrantedChunks {
 public:
  // For a collective of `rules`; null when no rule was taken.
  void Keep(int collective, const LookupTable& rules, const Candidate* chosen) {
    uint64_t word = rules.ChunkOf(chosen);
    if (word != 0) {
      word |= uint64_t{chosen->algorithm} << kAlgorithmBit;
      word |= uint64_t{chosen->protocol} << kProtocolBit;
    }
    At(collective).store(word, std::memory_order_relaxed);
  }

  void Forget(int collective) { At(collective).store(0, std::memory_order_relaxed); }

  // 0: none for what NCCL runs, which may be something else than the rule named.
  uint32_t Find(int collective, int algorithm, int protocol) const {
    const uint64_t word = words_[static_cast<size_t>(collective)].load(std::memory_order_relaxed);
    const bool meant = static_cast<int>(word >> kAlgorithmBit & 0xffU) == algorithm &&
                       static_cast<int>(word >> kProtocolBit & 0xffU) == protocol;
    return meant ? static_cast<uint32_t>(word) : 0;
  }

 private:
  static constexpr unsigned kAlgorithmBit = 32;
  static constexpr unsigned kProtocolBit = 40;

  std::atomic<uint64_t>& At(int collective) { return words_[static_cast<size_t>(collective)]; }

  std::array<std::atomic<uint64_t>, abi::kNumCollectives> words_{};
};

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_GRANTED_CHUNKS_H_
