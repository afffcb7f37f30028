// SPDX-License-Identifier: Apache-2.0
//
// Staging memory on the sender's GPU, for sends that complete before they are received. The memory
// is a ring of regions, one for each staged message. A region is free again when the `done` flag of
// its message is written. The next user of the region waits for that flag in its stream, like a
// send of NCCL that waits for space in NCCL's buffers. So the host never waits for a free region.
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

  struct Completion {
    Flag* done = nullptr;
    uint32_t value = 0;
  };
  struct Region {
    DeviceAddress at = 0;
    std::vector<Completion> wait_for;  // messages that must leave the region first
    uint64_t begin = 0;                // position in the ring, in bytes since the first message
    uint64_t end = 0;
  };

  DeviceAddress base() const { return base_; }

  // Returns the region for the next message, or nothing if the message is larger than the ring.
  // Does not reserve the region.
  std::optional<Region> Find(uint64_t bytes) const;
  // Reserves the region that Find returned last, until `done` reaches `value`.
  void Take(const Region& region, Flag& done, uint32_t value);

 private:
  struct HeldRegion {
    uint64_t begin = 0;
    Completion message;
  };
  bool Overlaps(const HeldRegion& held, uint64_t end) const { return end > held.begin + capacity_; }

  DeviceAddress base_;
  uint64_t capacity_;
  uint64_t head_ = 0;  // where the next region begins
  std::deque<HeldRegion> held_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_STAGING_H_
