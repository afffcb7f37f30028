// SPDX-License-Identifier: Apache-2.0
//
// Memory of a sender's GPU for messages that go on before they are received: a ring, whose parts
// are free again when the message's flag says that its bytes are there. Who takes a part waits for
// that in its stream, as a send of NCCL waits for room in the buffers: what is free is not known
// before.
#ifndef NCCLTUNE_SENDRECV_STAGING_H_
#define NCCLTUNE_SENDRECV_STAGING_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

class Staging {
 public:
  Staging(DeviceAddress base, uint64_t capacity) : base_(base), capacity_(capacity) {}

  struct Before {
    Flag* done = nullptr;
    uint32_t value = 0;
  };
  struct Room {
    DeviceAddress at = 0;
    std::vector<Before> before;  // whose bytes must be there first
    uint64_t begin = 0;          // in bytes since the first
    uint64_t end = 0;
  };

  DeviceAddress base() const { return base_; }

  // Where the next message has its room; nothing where it is larger than all of it. Whoever is told
  // of the room may yet go without.
  std::optional<Room> Find(uint64_t bytes) const;
  // What was found last is taken until `done` reaches `value`.
  void Take(const Room& room, Flag& done, uint32_t value);

 private:
  struct Held {
    uint64_t begin = 0;
    Before message;
  };
  bool IsInTheWay(const Held& held, uint64_t end) const { return end > held.begin + capacity_; }

  DeviceAddress base_;
  uint64_t capacity_;
  uint64_t head_ = 0;  // where the next begins
  std::deque<Held> held_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_STAGING_H_
