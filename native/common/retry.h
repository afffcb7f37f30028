// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_RETRY_H_
#define NCCLTUNE_COMMON_RETRY_H_

#include <cerrno>

namespace nccltune {

// Repeats a system call that was interrupted by a signal. Other code in the process may install
// handlers without SA_RESTART (profilers, Python). Do not use it for close(2), which closes even if
// it is interrupted.
template <typename Call>
auto Retry(const Call& call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_RETRY_H_
