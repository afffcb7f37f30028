// SPDX-License-Identifier: Apache-2.0
//
// The plugin's side of the control interface: what is forced, and what has been recorded.
#ifndef NCCLTUNE_TUNER_CONTROL_STATE_H_
#define NCCLTUNE_TUNER_CONTROL_STATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"
#include "tuner/control.h"

namespace nccltune::tuner {

// Orders for one collective. They fit one word, so that a call sees all of an order or none of it.
struct Orders {
  bool forced = false;
  bool recording = false;
  int algorithm = -1;  // -1, with protocol -1: NCCL's own
  int protocol = -1;
  int channels = -1;         // -1: NCCL's own
  uint32_t chunk_bytes = 0;  // 0: NCCL's own
};

// 0 stands for "nothing is forced or recorded".
uint64_t Packed(const Orders& orders);
Orders Unpacked(uint64_t word);

namespace internal {
extern std::array<std::atomic<uint64_t>, abi::kNumCollectives> order_words;
}

// For a valid collective. Acquire pairs with the store in force(): what the ordering thread did
// before is seen by the collective that follows the order.
inline uint64_t OrderWord(int collective) {
  return internal::order_words[static_cast<size_t>(collective)].load(std::memory_order_acquire);
}

// Stamps the decision, and the table if there is one, with the next sequence number and keeps them.
void RecordCall(nccltune_tuner_decision* decision, nccltune_tuner_table* table);

// Adds what became of a chunk size to the newest decision about the collective.
void RecordChunk(int collective, uint64_t before, uint64_t after, bool refused);

// What was recorded; false when there is nothing of that kind.
bool FindTable(int collective, uint64_t bytes, nccltune_tuner_table* table);
bool FindNewestTable(int collective, nccltune_tuner_table* table);
bool FindDecision(int collective, nccltune_tuner_decision* decision);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONTROL_STATE_H_
