// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's own send and receive do, as far as programs can tell: messages of a pair in order; a
// send alone is over when its bytes are in a buffer of limited size, one in a group with receives
// when it is received; a group is one kernel, in which all goes on at once.
#ifndef NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_
#define NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "sendrecv/lane.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {

class NativeLane {
 public:
  explicit NativeLane(uint64_t capacity) : capacity_(capacity) {}

  struct Message {
    uint64_t bytes = 0;
    bool send_begun = false;
    bool receive_begun = false;
    bool eager = false;
    bool buffered = false;
    bool delivered = false;
    std::vector<uint8_t> data;
  };

  // The next one, as this side counts them.
  std::shared_ptr<Message> Next(Role role);
  // What can go on by now goes on. From any thread.
  bool Over(const Message& message, Role role);
  // `data` and `eager` are the sender's.
  void Begin(Message& message, Role role, std::vector<uint8_t> data, bool eager);

 private:
  std::shared_ptr<Message> At(size_t index);
  void Advance();

  const uint64_t capacity_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  size_t next_[2] = {};
  std::vector<std::shared_ptr<Message>> messages_;
  size_t first_ = 0;  // of those that are not delivered
};

struct NativeCall {
  NativeLane* lane = nullptr;
  Role role = Role::kSender;
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// One ncclGroup on a stream. False: the driver refused.
bool NativeGroup(SoftDriver& driver, Stream stream, const std::vector<NativeCall>& calls);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_NATIVE_MODEL_H_
