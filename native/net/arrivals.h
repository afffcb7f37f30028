// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a request have arrived. Both peers derive the same grid from the request's size
// and cut only on it. So a duplicate is recognised even if it was cut differently. Pure.
#ifndef NCCLTUNE_NET_ARRIVALS_H_
#define NCCLTUNE_NET_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nccltune::net {

// Returns the grid's step for a request of `total` bytes: a power of two from 8 KiB to 1 MiB.
uint64_t Granule(uint64_t total);

// Returns whether `length` bytes at `offset` are a valid chunk of such a request: inside it and cut
// on the grid. Only an empty request has an empty chunk.
bool OnGrid(uint64_t total, uint64_t offset, uint64_t length);

// The granules of one request that have arrived. All chunks passed in must be on the grid.
class Arrivals {
 public:
  void Reset(uint64_t total);

  // Returns whether any part of the chunk has not arrived yet.
  bool AnyMissing(uint64_t offset, uint64_t length) const;

  // Marks the chunk as arrived. Returns how many of its bytes are new.
  uint64_t Mark(uint64_t offset, uint64_t length);

 private:
  uint64_t total_ = 0;
  uint64_t granule_ = 0;
  std::vector<bool> arrived_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ARRIVALS_H_
