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
#include <map>
#include <string>
#include <vector>

#include "sendrecv/cuda_driver.h"
#include "sendrecv/segment.h"

namespace nccltune::sendrecv {

enum class Reach : uint8_t {
  kReached,
  kNotYet,    // offered; the peer has not looked since
  kNever,     // the peer could not map it
  kUnshared,  // it has no handle: of a pool, or mapped by hand
  kNoMemory,  // no single allocation of this process on the GPU
  kNoRoom,    // as many allocations as there is room for
};

struct Found {
  Reach reach = Reach::kNoMemory;
  uint64_t number = 0;
  uint64_t offset = 0;
};

// What a rank offers. Not for several threads at once.
class Offers {
 public:
  Offers(const CudaDriver& driver, Card& card) : driver_(driver), card_(card) {}
  // Peers let go of everything when they look.
  ~Offers();
  Offers(const Offers&) = delete;
  Offers& operator=(const Offers&) = delete;

  Found Find(DeviceAddress address, uint64_t bytes, size_t peer);

  // Takes back what was freed meanwhile; peers keep the memory taken until then. Does so now and
  // then alone.
  void Sweep();

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
  uint64_t made_ = 0;
  std::chrono::steady_clock::time_point swept_;
};

// What a peer offers, as far as it is wanted by this rank. Not for several threads at once.
class Imports {
 public:
  enum class Kind : uint8_t {
    kByHandle,
    kDirect,  // of the same process: nothing to map
    kNone,    // no GPU of ours reaches it
  };
  // `place`: ours.
  Imports(const CudaDriver& driver, Card& peer, size_t place, Kind kind)
      : driver_(driver), peer_(peer), place_(place), kind_(kind) {}
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // Maps what is new, lets go of what is gone.
  void Look();
  // 0: never seen.
  DeviceAddress Resolve(uint64_t number, uint64_t offset) const;

 private:
  DeviceAddress Map(const Share& share);
  void LetGo(DeviceAddress base);

  const CudaDriver& driver_;
  Card& peer_;
  size_t place_;
  Kind kind_;
  uint64_t seen_ = 0;
  std::map<uint64_t, DeviceAddress> bases_;  // by number
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SHARES_H_
