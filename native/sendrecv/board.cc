// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/board.h"

namespace nccltune::sendrecv {

// In turn, so that a peer that looks at one while it is taken back does not find another in it.
Share* Board::Free() {
  for (size_t i = 0; i < Card::kShares; ++i) {
    Share& share = card_.shares[(next_ + i) % Card::kShares];
    if (share.number.load() != 0) continue;
    next_ = (next_ + i + 1) % Card::kShares;
    return &share;
  }
  return nullptr;
}

void Board::Publish(Share* share) {
  share->wanted.store(0);
  share->imported.store(0);
  share->refused.store(0);
  share->number.store(++made_);
}

void Board::TakeBack(Share* share) {
  share->number.store(0);
  Changed();
}

Found Board::Ask(Share* share, uint64_t offset, size_t peer) {
  Found found = {.reach = Reach::kNotYet, .number = share->number.load(), .offset = offset};
  if ((share->wanted.fetch_or(BitOf(peer)) & BitOf(peer)) == 0) Changed();
  if ((share->imported.load() & BitOf(peer)) != 0) found.reach = Reach::kReached;
  if ((share->refused.load() & BitOf(peer)) != 0) found.reach = Reach::kNever;
  return found;
}

}  // namespace nccltune::sendrecv
