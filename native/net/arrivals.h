// SPDX-License-Identifier: Apache-2.0
// Records which bytes of a request have arrived. A request is cut into chunks only at multiples of
// a granule. Both peers derive the granule from the request's size. So the receiver recognises
// bytes that arrive twice, even if the two copies were cut differently. This code makes no system
// call.
#ifndef NCCLTUNE_NET_ARRIVALS_H_
#define NCCLTUNE_NET_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nccltune::net {

// Returns the granule of a request of `total` bytes: a power of two from 8 KiB to 1 MiB.
uint64_t Granule(uint64_t total);

// Returns whether `length` bytes at `offset` are a valid chunk of a request of `total` bytes. A
// valid chunk starts at a multiple of the granule, and ends at another multiple or at the request's
// end. An empty chunk is valid only for an empty request.
bool OnGrid(uint64_t total, uint64_t offset, uint64_t length);

// The granules of one request that have arrived. Chunks passed to the functions must be valid
// (OnGrid).
class Arrivals {
 public:
  void Reset(uint64_t total);

  // Returns whether any byte of the chunk has not arrived yet. For an empty chunk: whether the
  // chunk has not arrived.
  bool AnyMissing(uint64_t offset, uint64_t length) const;

  // Marks the chunk as arrived. Returns the number of bytes that had not arrived before.
  uint64_t Mark(uint64_t offset, uint64_t length);

 private:
  uint64_t total_ = 0;
  uint64_t granule_ = 0;
  std::vector<bool> arrived_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ARRIVALS_H_
