// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>

namespace nccltune {

// Repeats a system call while a signal interrupts it (EINTR). Returns the last result. Profilers
// and Python may install signal handlers without SA_RESTART. Do not use this for close(2): an
// interrupted close has still closed the descriptor.
template <typename Call>
auto Retry(const Call& call) {
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

}  // namespace nccltune
