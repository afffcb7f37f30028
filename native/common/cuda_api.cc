// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_api.h"

#include "common/shared_library.h"

namespace nccltune::cu {
namespace {

// Returns the oldest CUDA version whose driver has all functions that `caller` requires.
const char* OldestCuda(Caller caller) { return caller == kSendRecv ? "11.7" : "11.4"; }

}  // namespace

std::string Load(Caller caller, Api* api) {
  std::string error;
  SharedLibrary library = SharedLibrary::Open("libcuda.so.1", &error);
  if (!library) return error;
  const char* missing = nullptr;
#define NCCLTUNE_CUDA(needed_by, name, symbol, parameters)                         \
  api->name = library.Find<Result parameters>(#symbol);                            \
  if (api->name == nullptr && missing == nullptr && ((needed_by) & caller) != 0) { \
    missing = #symbol;                                                             \
  }
#include "common/cuda_functions.inc"
#undef NCCLTUNE_CUDA
  if (missing != nullptr) {
    error = "the NVIDIA driver is too old: " + library.Path() + " has no " + missing +
            " (needed is CUDA " + OldestCuda(caller) + " or newer)";
  }
  // Never unload libcuda: its threads may still run its code.
  library.Keep();
  return error;
}

std::string NameOf(const Api& api, Result result) {
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) == kSuccess && name != nullptr) return name;
  return "CUDA error " + std::to_string(result);
}

}  // namespace nccltune::cu
