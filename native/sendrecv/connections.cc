// SPDX-License-Identifier: Apache-2.0
//
// Sets CUDA_DEVICE_MAX_CONNECTIONS to 32 when the library is loaded, unless the variable is set,
// the library is off, or the process is a client of NVIDIA's MPS. CUDA reads the variable when CUDA
// is initialised, long after this library is loaded with the program.
#include "sendrecv/connections.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): a variable of glibc 2.32
extern "C" __attribute__((weak)) char __libc_single_threaded;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace nccltune::sendrecv {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
// With 8, CUDA's default, random programs hang on the stand-ins, with 16 none does.
constexpr long kLeastConnections = 16;

bool HasOneThread() {
  if (&__libc_single_threaded != nullptr) return __libc_single_threaded != 0;
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return false;
  int entries = 0;
  while (readdir(threads) != nullptr) ++entries;
  closedir(threads);
  return entries == 3;  // with "." and ".."
}

// Returns whether a daemon of MPS seems to run. CUDA then makes this process its client.
bool IsMpsClient() {
  const char* const set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = set != nullptr ? set : "/tmp/nvidia-mps";
  return access((folder + "/control").c_str(), F_OK) == 0;
}

__attribute__((constructor)) void MakeConnections() {
  const char* mode = std::getenv("NCCLTUNE_SENDRECV");
  if (mode == nullptr || *mode == '\0' || std::strcmp(mode, "0") == 0) return;
  // With several threads, setenv could race with a thread that reads the environment.
  if (HasOneThread() && !IsMpsClient()) setenv(kVariable, "32", 0);
}

}  // namespace

const char* WhyTooFewConnections() {
  if (const char* const set = std::getenv(kVariable)) {
    const long count = std::strtol(set, nullptr, 10);
    if (count == 1 || count >= kLeastConnections) return nullptr;
    return "CUDA_DEVICE_MAX_CONNECTIONS must be 1 or at least 16: with few connections, streams "
           "that wait block streams that they wait for";
  }
  if (IsMpsClient()) {
    return "under NVIDIA's MPS a process has few connections to the GPU; set "
           "CUDA_DEVICE_MAX_CONNECTIONS to 1 or to at least 16: the more, the fewer processes CUDA "
           "starts on a GPU";
  }
  return "the library was loaded too late to ask CUDA for more connections to the GPU; set "
         "CUDA_DEVICE_MAX_CONNECTIONS=32 before the program starts";
}

}  // namespace nccltune::sendrecv
