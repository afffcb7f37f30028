// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "abi/tuner.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

// The chunk size of the newest decision about each collective of one communicator.
//
// getChunkSize gets the bytes of one channel, not of the call (NCCL 2.30 to 2.32). So getChunkSize
// cannot look up the rule of the call. But NCCL calls getCollInfo for every call of a group before
// it cuts any of these calls into chunks. So the newest decision belongs to the same group, and is
// the same on every rank. The words are atomic only to avoid data races between calling threads.
class GrantedChunks {
 public:
  // Stores the chunk size of `chosen`, a candidate of `rules`, for the collective. If `chosen` is
  // null (no rule was applied) or has no chunk size, removes the stored one.
  void Keep(int collective, const LookupTable& rules, const Candidate* chosen) {
    uint64_t word = rules.ChunkOf(chosen);
    if (word != 0) {
      word |= uint64_t{chosen->algorithm} << kAlgorithmBit;
      word |= uint64_t{chosen->protocol} << kProtocolBit;
    }
    At(collective).store(word, std::memory_order_relaxed);
  }

  void Forget(int collective) { At(collective).store(0, std::memory_order_relaxed); }

  // Returns the chunk size, or 0 if there is none for this pair of algorithm and protocol. NCCL may
  // run another pair than the rule names.
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

// The plugin's state of one communicator between init and destroy. Only `chunks` changes after
// init, so any thread may read the other members without a lock.
struct TunerContext {
  RuleSet rules;
  std::shared_ptr<RuleHits> hits;  // null if no file with rules is used
  Scale scale;
  int interface_version = 0;
  int device = -1;  // the CUDA device of the rank; -1: unknown
  // The two members below are used only for interface v2; see support_matrix.h.
  bool measured_here = false;
  bool filtered = false;
  // Used only if a rule of the collective has a chunk size.
  mutable GrantedChunks chunks;
};

}  // namespace nccltune::tuner
