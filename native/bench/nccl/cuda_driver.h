// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_
#define NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_

#include <memory>
#include <optional>
#include <string>

#include "bench/backend.h"
#include "common/cuda_api.h"

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

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_
