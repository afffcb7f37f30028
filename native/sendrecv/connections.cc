// SPDX-License-Identifier: Apache-2.0
//
// Streams share CUDA's connections to a GPU, 8 by default, and what waits in one keeps all streams
// of its connection waiting. CUDA reads the number when it starts, which is long after a library
// that is loaded with the program.
#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): glibc's since 2.32
extern "C" __attribute__((weak)) char __libc_single_threaded;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

__attribute__((constructor)) void MakeConnections() {
  const char* mode = std::getenv("NCCLTUNE_SENDRECV");
  if (mode == nullptr || *mode == '\0' || std::strcmp(mode, "0") == 0) return;
  // Other threads may be reading the environment.
  if (&__libc_single_threaded == nullptr || __libc_single_threaded == 0) return;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

}  // namespace
