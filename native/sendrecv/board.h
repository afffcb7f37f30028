// SPDX-License-Identifier: Apache-2.0
//
// The shares of a rank's own card: which are free, and how far peers are with them.
#ifndef NCCLTUNE_SENDRECV_BOARD_H_
#define NCCLTUNE_SENDRECV_BOARD_H_

#include <cstddef>
#include <cstdint>

#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

enum class Reach : uint8_t {
  kReached,
  kNotYet,    // offered; the peer has not looked since
  kNever,     // the peer could not map it
  kUnshared,  // it has no handle: of a pool, or mapped by hand and not made to be shared
  kNoMemory,  // no memory of this process on the GPU, or not all of it
  kNoRoom,    // as many are offered as there is room for
};

struct Found {
  Reach reach = Reach::kNoMemory;
  uint64_t number = 0;
  uint64_t offset = 0;
};

inline uint64_t BitOf(size_t place) { return uint64_t{1} << place; }

class Board {
 public:
  explicit Board(Card& card) : card_(card) {}

  // Null: all are taken.
  Share* Free();
  // What the share says is written.
  void Publish(Share* share);
  void TakeBack(Share* share);
  // Peers look again.
  void Changed() { ++card_.shares_changed; }
  // From now on the peer is to have it.
  Found Ask(Share* share, uint64_t offset, size_t peer);

 private:
  Card& card_;
  size_t next_ = 0;
  uint64_t made_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_BOARD_H_
