// SPDX-License-Identifier: Apache-2.0
// The state behind the control interface: the orders (forced choices, recording) and the records of
// calls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/tuner.h"
#include "tuner/control.h"

namespace nccltune::tuner {

// The orders for one collective. They fit into one word: a call reads the word with one atomic load
// and never sees a half-changed order.
struct Orders {
  bool forced = false;
  bool recording = false;
  int algorithm = -1;  // NCCL's choice if -1; then protocol is -1 too
  int protocol = -1;
  int channels = -1;         // -1: NCCL's choice
  uint32_t chunk_bytes = 0;  // 0: NCCL's choice
};

// Packs orders into a word; 0 means that nothing is forced or recorded.
uint64_t Packed(const Orders& orders);
Orders Unpacked(uint64_t word);

namespace internal {
extern std::array<std::atomic<uint64_t>, abi::kNumCollectives> order_words;
}

// Returns the orders of a valid collective as one word. The acquire pairs with the release store of
// the thread that changes the orders. So a call that sees an order also sees what that thread wrote
// before.
inline uint64_t OrderWord(int collective) {
  return internal::order_words[static_cast<size_t>(collective)].load(std::memory_order_acquire);
}

// Decisions are recorded for each CUDA device from 0 to kDevices - 1. Communicators whose device is
// unknown or has a higher number count for every device.
inline constexpr int kDevices = 64;
inline constexpr int kAnyDevice = -1;

// Gives the decision and its table the next sequence number, and stores both. `table` may be null.
void RecordCall(int device, nccltune_tuner_decision* decision, nccltune_tuner_table* table);

// Adds the result of a chunk size request to the newest decision about the collective.
void RecordChunk(int device, int collective, uint64_t before, uint64_t after, bool refused);

// Each function copies a record to its last argument. It returns false if there is no such record.
bool FindTable(int collective, uint64_t bytes, nccltune_tuner_table* table);
bool FindNewestTable(int collective, nccltune_tuner_table* table);
bool FindDecision(int device, int collective, nccltune_tuner_decision* decision);

}  // namespace nccltune::tuner
