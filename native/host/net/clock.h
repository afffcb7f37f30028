// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_HOST_NET_CLOCK_H_
#define NCCLTUNE_HOST_NET_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace nccltune::host::net {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// Returns the time in nanoseconds of the monotonic clock, which all processes of a machine share.
inline int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return kSecond * now.tv_sec + now.tv_nsec;
}

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_CLOCK_H_
