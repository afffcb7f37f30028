// SPDX-License-Identifier: Apache-2.0
#include "tuner/control_state.h"

#include <algorithm>
#include <mutex>

namespace nccltune::tuner {
namespace internal {
constinit std::array<std::atomic<uint64_t>, abi::kNumCollectives> order_words{};
}

namespace {

// Bit positions of the fields of a word, from the lowest: forced, recording, algorithm + 1,
// protocol + 1, channels, chunk.
constexpr unsigned kRecordingBit = 1;
constexpr unsigned kAlgorithmBit = 2;
constexpr unsigned kProtocolBit = 6;
constexpr unsigned kChannelsBit = 9;
constexpr unsigned kChunkBit = 16;
constexpr uint64_t kRecording = uint64_t{1} << kRecordingBit;

// Tables are stored in small sets, chosen by a hash of the collective and the size. A full set
// replaces its oldest table.
constexpr size_t kSets = 128;
constexpr size_t kWays = 8;
using TableSet = std::array<nccltune_tuner_table, kWays>;

struct Records {
  std::mutex mutex;
  uint64_t sequence = 0;
  std::array<TableSet, kSets> tables{};  // sequence 0 marks a free entry
  // The last element counts for every device.
  std::array<std::array<nccltune_tuner_decision, abi::kNumCollectives>, kDevices + 1> decisions{};
};

constinit Records records;

nccltune_tuner_decision& DecisionOf(int device, int collective) {
  const bool known = device >= 0 && device < kDevices;
  return records
      .decisions[static_cast<size_t>(known ? device : kDevices)][static_cast<size_t>(collective)];
}

TableSet& SetOf(int collective, uint64_t bytes) {
  uint64_t hash = (bytes + 1) * 0x9e3779b97f4a7c15U;
  hash ^= static_cast<uint64_t>(collective) * 0xc2b2ae3d27d4eb4fU;
  return records.tables[(hash >> 32U) % kSets];
}

bool IsOf(const nccltune_tuner_table& table, int collective, uint64_t bytes) {
  return table.sequence != 0 && table.collective == collective && table.bytes == bytes;
}

void KeepTable(const nccltune_tuner_table& table) {
  TableSet& set = SetOf(table.collective, table.bytes);
  auto place = std::find_if(set.begin(), set.end(), [&table](const nccltune_tuner_table& kept) {
    return IsOf(kept, table.collective, table.bytes);
  });
  if (place == set.end()) {
    place = std::min_element(set.begin(), set.end(),
                             [](const nccltune_tuner_table& a, const nccltune_tuner_table& b) {
                               return a.sequence < b.sequence;
                             });
  }
  *place = table;
}

}  // namespace

uint64_t Packed(const Orders& orders) {
  uint64_t word = orders.recording ? kRecording : 0;
  if (!orders.forced) return word;
  word |= 1U;
  word |= static_cast<uint64_t>(orders.algorithm + 1) << kAlgorithmBit;
  word |= static_cast<uint64_t>(orders.protocol + 1) << kProtocolBit;
  word |= static_cast<uint64_t>(std::max(orders.channels, 0)) << kChannelsBit;
  word |= uint64_t{orders.chunk_bytes} << kChunkBit;
  return word;
}

Orders Unpacked(uint64_t word) {
  Orders orders;
  orders.recording = (word & kRecording) != 0;
  orders.forced = (word & 1U) != 0;
  if (!orders.forced) return orders;
  orders.algorithm = static_cast<int>(word >> kAlgorithmBit & 0xfU) - 1;
  orders.protocol = static_cast<int>(word >> kProtocolBit & 0x7U) - 1;
  const int channels = static_cast<int>(word >> kChannelsBit & 0x7fU);
  orders.channels = channels == 0 ? -1 : channels;
  orders.chunk_bytes = static_cast<uint32_t>(word >> kChunkBit);
  return orders;
}

void RecordCall(int device, nccltune_tuner_decision* decision, nccltune_tuner_table* table) {
  const std::lock_guard<std::mutex> lock(records.mutex);
  decision->sequence = ++records.sequence;
  DecisionOf(device, decision->collective) = *decision;
  if (table == nullptr) return;
  table->sequence = decision->sequence;
  KeepTable(*table);
}

void RecordChunk(int device, int collective, uint64_t before, uint64_t after, bool refused) {
  const std::lock_guard<std::mutex> lock(records.mutex);
  nccltune_tuner_decision& decision = DecisionOf(device, collective);
  decision.chunk_bytes_before = before;
  decision.chunk_bytes = after;
  if (refused) decision.outcome |= NCCLTUNE_TUNER_CHUNK_REFUSED;
}

bool FindTable(int collective, uint64_t bytes, nccltune_tuner_table* table) {
  const std::lock_guard<std::mutex> lock(records.mutex);
  const TableSet& set = SetOf(collective, bytes);
  const auto kept = std::find_if(set.begin(), set.end(), [=](const nccltune_tuner_table& entry) {
    return IsOf(entry, collective, bytes);
  });
  if (kept == set.end()) return false;
  *table = *kept;
  return true;
}

bool FindNewestTable(int collective, nccltune_tuner_table* table) {
  const std::lock_guard<std::mutex> lock(records.mutex);
  uint64_t newest = 0;
  for (const TableSet& set : records.tables) {
    for (const nccltune_tuner_table& kept : set) {
      if (kept.sequence <= newest || kept.collective != collective) continue;
      newest = kept.sequence;
      *table = kept;
    }
  }
  return newest != 0;
}

bool FindDecision(int device, int collective, nccltune_tuner_decision* decision) {
  const std::lock_guard<std::mutex> lock(records.mutex);
  const nccltune_tuner_decision* newest = &DecisionOf(kDevices, collective);
  for (int each = 0; each < kDevices; ++each) {
    if (device != kAnyDevice && device != each) continue;
    const nccltune_tuner_decision& kept = DecisionOf(each, collective);
    if (kept.sequence > newest->sequence) newest = &kept;
  }
  if (newest->sequence == 0) return false;
  *decision = *newest;
  return true;
}

}  // namespace nccltune::tuner
