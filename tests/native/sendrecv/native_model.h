// SPDX-License-Identifier: Apache-2.0
//
// A model of NCCL's own send and receive. The messages of a pair stay in order. A send alone
// completes when its bytes are in a buffer of limited size; a send in a group with receives
// completes when it is received. A group is one kernel, in which all messages progress at once.
#ifndef NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_
#define NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "sendrecv/lane/gate.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {

class NativeLane {
 public:
  explicit NativeLane(uint64_t capacity) : capacity_(capacity) {}

  struct GroupMessage {
    uint64_t bytes = 0;
    bool send_begun = false;
    bool receive_begun = false;
    bool eager = false;
    bool buffered = false;
    bool delivered = false;
    std::vector<uint8_t> data;
  };

  // Returns the next message in this side's order.
  std::shared_ptr<GroupMessage> Next(Role role);
  // Advances all messages that can progress, and returns whether this one is complete. Thread-safe.
  bool Over(const GroupMessage& message, Role role);
  // `data` and `eager` are given by the sender.
  void Begin(GroupMessage& message, Role role, std::vector<uint8_t> data, bool eager);

 private:
  std::shared_ptr<GroupMessage> At(size_t index);
  void Advance();

  const uint64_t capacity_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  size_t next_[2] = {};
  std::vector<std::shared_ptr<GroupMessage>> messages_;
  size_t first_ = 0;  // index of the first message that is not delivered
};

struct NativeCall {
  NativeLane* lane = nullptr;
  Role role = Role::kSender;
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// Enqueues one ncclGroup in a stream. Returns false if the driver refuses.
bool NativeGroup(SoftDriver& driver, Stream stream, const std::vector<NativeCall>& calls);

// A gate that is open for both sides before their first message.
struct OpenedGate {
  GateMemory memory;
  OpenedGate() {
    GateState state;
    state.entered = {true, true};
    state.opened = true;
    memory.periods[0].store(state.Packed());
  }
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_
