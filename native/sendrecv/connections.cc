// SPDX-License-Identifier: Apache-2.0
//
// Sets CUDA_DEVICE_MAX_CONNECTIONS to 32 when the library is loaded, unless the variable is set or
// the library is off. Streams share CUDA's connections to a GPU, 8 by default. A stream that waits
// blocks all streams of its connection, so more connections block fewer streams. CUDA reads the
// variable when CUDA is initialised, long after this library is loaded with the program.
#include <cstdlib>
#include <cstring>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): a variable of glibc 2.32
extern "C" __attribute__((weak)) char __libc_single_threaded;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

__attribute__((constructor)) void MakeConnections() {
  const char* mode = std::getenv("NCCLTUNE_SENDRECV");
  if (mode == nullptr || *mode == '\0' || std::strcmp(mode, "0") == 0) return;
  // With several threads, setenv could race with a thread that reads the environment. So do nothing
  // unless the process certainly has one thread.
  if (&__libc_single_threaded == nullptr || __libc_single_threaded == 0) return;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

}  // namespace
