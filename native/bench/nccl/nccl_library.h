// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/backend.h"
#include "bench/nccl/nccl_abi.h"
#include "common/cuda_api.h"
#include "common/nccl_version.h"
#include "common/shared_library.h"

namespace nccltune::bench {

// The CUDA driver library (libcuda.so.1), which is opened and initialized.
class CudaLibrary {
 public:
  // Returns null with *error (kCannotRun) if there is no driver or no GPU.
  static std::unique_ptr<CudaLibrary> Open(OpenError* error);

  const cu::Api* operator->() const { return &api_; }

  int devices() const { return devices_; }
  // Returns the newest CUDA version that the driver supports, such as "13.0".
  const std::string& version() const { return version_; }

  // Returns the text of a result, such as "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  std::string Text(cu::Result result) const;

  // Returns nullopt for success. Otherwise returns an error of kind kCuda with `what` and the
  // driver's text. The error is always fatal, because a context that failed once cannot be used
  // again.
  std::optional<StepError> Check(cu::Result result, const char* what, int rank) const;

 private:
  CudaLibrary() = default;

  cu::Api api_;
  int devices_ = 0;
  std::string version_;
};

// Returns the path of the libnccl.so.2 that belongs to the PyTorch of the first `python3` on PATH.
// Returns an empty string if there is no such Python or PyTorch, or if that PyTorch uses the
// system's library. Runs that Python for some tens of milliseconds (at most ten seconds) without
// importing its packages.
std::string FindTorchNccl();

// An opened NCCL library (libnccl.so.2).
class NcclLibrary {
 public:
  // Opens the library at `path`. If `path` is empty, opens the library of the PyTorch in the active
  // Python (the first `python3` on PATH), or else the system's library. Before this call, set the
  // environment variables that NCCL reads when it is loaded. Returns null with *error if there is
  // no library, or if it cannot be opened or is older than 2.21.
  static std::unique_ptr<NcclLibrary> Open(const std::string& path, OpenError* error);

  const nccl::Functions* operator->() const { return &functions_; }

  const NcclVersion& version() const { return version_; }
  const std::string& path() const { return path_; }
  const char* from() const { return from_; }  // "flag", "torch" or "system"

  // Returns nullopt for success. Otherwise returns an error with `what`, NCCL's text and the
  // communicator's last error. After an invalid argument or invalid usage the communicator stays
  // usable; any other error is fatal.
  std::optional<StepError> Check(nccl::Result result, const char* what, int rank,
                                 nccl::Comm comm) const;
  StepError FailureOf(nccl::Result result, const char* what, int rank, nccl::Comm comm) const;

 private:
  NcclLibrary() = default;
  bool TakeFunctions(const SharedLibrary& library, OpenError* error);

  std::string path_;
  const char* from_ = "";
  nccl::Functions functions_{};
  NcclVersion version_;
};

}  // namespace nccltune::bench
