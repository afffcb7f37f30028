// SPDX-License-Identifier: Apache-2.0
//
// A request is cut on a grid that both ends know from its size alone, so that what arrived twice is
// recognised however it was cut. Pure.
#ifndef NCCLTUNE_NET_ARRIVALS_H_
#define NCCLTUNE_NET_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nccltune::net {

// Bytes between two places where a request of `total` bytes may be cut: a power of two from 8 KiB
// to 1 MiB.
uint64_t Granule(uint64_t total);

// Whether `length` bytes at `offset` are a chunk of such a request: inside it, cut on the grid, and
// not empty but where the request is.
bool OnGrid(uint64_t total, uint64_t offset, uint64_t length);

// Which parts of one request have arrived. Chunks must be on the grid.
class Arrivals {
 public:
  void Reset(uint64_t total);

  // Something of the chunk has not arrived yet.
  bool Wanted(uint64_t offset, uint64_t length) const;

  // It has arrived now; how many of its bytes are new.
  uint64_t Mark(uint64_t offset, uint64_t length);

 private:
  uint64_t total_ = 0;
  uint64_t granule_ = 0;
  std::vector<bool> arrived_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ARRIVALS_H_
