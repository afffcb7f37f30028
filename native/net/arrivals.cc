// SPDX-License-Identifier: Apache-2.0
#include "net/arrivals.h"

#include <algorithm>
#include <bit>

namespace nccltune::net {
namespace {

constexpr uint64_t kSmallestGranule = 8 << 10;
constexpr uint64_t kLargestGranule = 1 << 20;
// A request has at most this many granules. Only a request with the largest granule may have more.
constexpr uint64_t kMostGranules = 4096;

}  // namespace

uint64_t Granule(uint64_t total) {
  const uint64_t wanted = std::bit_ceil(total / kMostGranules + 1);
  return std::clamp(wanted, kSmallestGranule, kLargestGranule);
}

bool OnGrid(uint64_t total, uint64_t offset, uint64_t length) {
  if (offset > total || length > total - offset) return false;
  if (length == 0) return total == 0;
  const uint64_t granule = Granule(total);
  const bool ends_well = length % granule == 0 || offset + length == total;
  return offset % granule == 0 && ends_well;
}

void Arrivals::Reset(uint64_t total) {
  total_ = total;
  granule_ = Granule(total);
  arrived_.assign(total == 0 ? 1 : (total + granule_ - 1) / granule_, false);
}

bool Arrivals::AnyMissing(uint64_t offset, uint64_t length) const {
  const uint64_t last = length == 0 ? 0 : (offset + length - 1) / granule_;
  for (uint64_t i = offset / granule_; i <= last; ++i) {
    if (!arrived_[i]) return true;
  }
  return false;
}

uint64_t Arrivals::Mark(uint64_t offset, uint64_t length) {
  uint64_t bytes = 0;
  const uint64_t last = length == 0 ? 0 : (offset + length - 1) / granule_;
  for (uint64_t i = offset / granule_; i <= last; ++i) {
    if (arrived_[i]) continue;
    arrived_[i] = true;
    bytes += std::min(granule_, total_ - i * granule_);
  }
  return bytes;
}

}  // namespace nccltune::net
