// SPDX-License-Identifier: Apache-2.0
//
// Memory of one rank that another one's GPU copies to or from. It is offered when it is first sent
// from or received into, in the rank's card; the peer maps it when it next looks there. Until then
// NCCL carries what is in it.
#ifndef NCCLTUNE_SENDRECV_SHARES_H_
#define NCCLTUNE_SENDRECV_SHARES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sendrecv/board.h"
#include "sendrecv/cuda_driver.h"
#include "sendrecv/inbox.h"
#include "sendrecv/mailbox.h"
#include "sendrecv/segment.h"
#include "sendrecv/spans.h"

namespace nccltune::sendrecv {

// What a rank offers. Not for several threads at once.
class Offers {
 public:
  // `mailbox`: null where there is none; then legacy handles alone are offered. `place`: ours.
  Offers(const CudaDriver& driver, Card& card, Mailbox* mailbox, size_t place)
      : driver_(driver), card_(card), board_(card), spans_(driver, board_, mailbox, place) {}
  // Peers let go of everything when they look.
  ~Offers();
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  Found Find(DeviceAddress address, uint64_t bytes, size_t peer);

  // Takes back what was freed meanwhile; peers keep the memory taken until then. Does so now and
  // then alone.
  void Sweep();
  // No message is between Find and its slot. Spans that have lost a chunk are taken back here
  // alone, as messages may be under way in the others.
  void Tidy(const Spans::InUse& in_use) { spans_.Tidy(in_use); }

 private:
  struct Known {
    Allocation allocation;
    size_t index = 0;
  };
  Share* Offer(const Allocation& allocation);
  void TakeBack(const Known& known);

  const CudaDriver& driver_;
  Card& card_;
  std::map<cu::Pointer, Known> known_;  // by base
  Board board_;
  Spans spans_;
  std::chrono::steady_clock::time_point swept_;
};

// What a peer offers, as far as it is wanted by this rank. Not for several threads at once.
class Imports {
 public:
  enum class Kind : uint8_t {
    kByHandle,
    kDirect,  // of the same process: nothing to map, but chunks, which stay as they are there
    kNone,    // no GPU of ours reaches it
  };
  // `place`: ours. `from`: the peer's, whose chunks come by the inbox; null where there is none.
  Imports(const CudaDriver& driver, Card& peer, size_t place, Kind kind, Inbox* inbox, size_t from)
      : driver_(driver), peer_(peer), place_(place), kind_(kind), inbox_(inbox), from_(from) {}
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // Maps what is new, lets go of what is gone. A handle that is closed waits for all that the GPU
  // does (driver 580), which may wait for what the caller does next: so it is closed with the rest,
  // or when `quiet` says that nothing waits. Where a peer frees much and nothing is ever quiet, no
  // more of its memory is mapped.
  void Look(const std::function<bool()>& quiet);
  // 0: never seen.
  DeviceAddress Resolve(uint64_t number, uint64_t offset) const;

 private:
  struct Mapping {
    DeviceAddress base = 0;
    uint64_t bytes = 0;
    bool chunked = false;  // not one of a legacy handle
  };
  enum class Outcome : uint8_t { kMapped, kRefused, kLater };

  Outcome Map(const Share& share, uint64_t number, Mapping* mapping);
  Outcome MapChunks(size_t count, uint64_t number, Mapping* mapping);
  void LetGo(const Mapping& mapping);
  void LetGoLater(const Mapping& mapping);
  // There is room for more.
  bool MakeRoom(const std::function<bool()>& quiet);

  const CudaDriver& driver_;
  Card& peer_;
  size_t place_;
  Kind kind_;
  Inbox* inbox_;
  size_t from_;
  uint64_t seen_ = 0;
  std::map<uint64_t, Mapping> mappings_;  // by number
  std::vector<Mapping> late_;             // that the peer has freed
  uint64_t late_bytes_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SHARES_H_
