// SPDX-License-Identifier: Apache-2.0
// The exported control functions. They check the arguments of the calling program and store the
// program's orders (forced choices, recording).
#include "tuner/control.h"

#include <limits>
#include <mutex>

#include "tuner/control_state.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {
namespace {

// Only threads that change orders lock this mutex. NCCL's calls read the orders with one atomic
// load.
constinit std::mutex order_mutex;

bool IsCollective(int collective) { return collective >= 0 && collective < abi::kNumCollectives; }

bool IsChoice(int algorithm, int protocol) {
  if (algorithm == NCCLTUNE_TUNER_DEFAULT && protocol == NCCLTUNE_TUNER_DEFAULT) return true;
  return algorithm >= 0 && algorithm < abi::kNumAlgorithms && protocol >= 0 &&
         protocol < abi::kNumProtocols;
}

bool IsChannels(int channels) {
  return channels == NCCLTUNE_TUNER_DEFAULT || (channels >= 1 && channels <= kMostChannels);
}

// Applies change(Orders*) to one collective, or to all for NCCLTUNE_TUNER_ALL. Returns
// NCCLTUNE_TUNER_INVALID for any other number.
template <typename Change>
int ChangeOrders(int collective, const Change& change) {
  if (collective != NCCLTUNE_TUNER_ALL && !IsCollective(collective)) return NCCLTUNE_TUNER_INVALID;
  const std::lock_guard<std::mutex> lock(order_mutex);
  for (int c = 0; c < abi::kNumCollectives; ++c) {
    if (collective != NCCLTUNE_TUNER_ALL && collective != c) continue;
    std::atomic<uint64_t>& word = internal::order_words[static_cast<size_t>(c)];
    Orders orders = Unpacked(word.load(std::memory_order_relaxed));
    change(&orders);
    word.store(Packed(orders), std::memory_order_release);
  }
  return NCCLTUNE_TUNER_OK;
}

}  // namespace
}  // namespace nccltune::tuner

namespace tuner = nccltune::tuner;

int nccltune_tuner_control_version(void) { return NCCLTUNE_TUNER_CONTROL_VERSION; }

const char* nccltune_tuner_version(void) { return NCCLTUNE_VERSION; }

int nccltune_tuner_force(int collective, int algorithm, int protocol, int channels,
                         size_t chunk_bytes) {
  if (!tuner::IsChoice(algorithm, protocol) || !tuner::IsChannels(channels) ||
      chunk_bytes > size_t{tuner::kLargestChunk}) {
    return NCCLTUNE_TUNER_INVALID;
  }
  return tuner::ChangeOrders(collective, [=](tuner::Orders* orders) {
    orders->forced = true;
    orders->algorithm = algorithm;
    orders->protocol = protocol;
    orders->channels = channels;
    orders->chunk_bytes = static_cast<uint32_t>(chunk_bytes);
  });
}

int nccltune_tuner_release(int collective) {
  return tuner::ChangeOrders(collective, [](tuner::Orders* orders) { orders->forced = false; });
}

int nccltune_tuner_record(int on) {
  if (on != 0 && on != 1) return NCCLTUNE_TUNER_INVALID;
  return tuner::ChangeOrders(NCCLTUNE_TUNER_ALL,
                             [on](tuner::Orders* orders) { orders->recording = on == 1; });
}

int nccltune_tuner_last_table(int collective, size_t bytes, nccltune_tuner_table* table) {
  if (!tuner::IsCollective(collective) || table == nullptr) return NCCLTUNE_TUNER_INVALID;
  const bool found = bytes == std::numeric_limits<size_t>::max()
                         ? tuner::FindNewestTable(collective, table)
                         : tuner::FindTable(collective, bytes, table);
  return found ? NCCLTUNE_TUNER_OK : NCCLTUNE_TUNER_NOTHING;
}

int nccltune_tuner_last_decision(int collective, nccltune_tuner_decision* decision) {
  if (!tuner::IsCollective(collective) || decision == nullptr) return NCCLTUNE_TUNER_INVALID;
  return tuner::FindDecision(tuner::kAnyDevice, collective, decision) ? NCCLTUNE_TUNER_OK
                                                                      : NCCLTUNE_TUNER_NOTHING;
}

int nccltune_tuner_device_decision(int device, int collective, nccltune_tuner_decision* decision) {
  if (device < 0 || device >= tuner::kDevices || !tuner::IsCollective(collective) ||
      decision == nullptr) {
    return NCCLTUNE_TUNER_INVALID;
  }
  return tuner::FindDecision(device, collective, decision) ? NCCLTUNE_TUNER_OK
                                                           : NCCLTUNE_TUNER_NOTHING;
}
