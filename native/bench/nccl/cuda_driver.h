// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_
#define NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_

#include <memory>
#include <optional>
#include <string>

#include "bench/backend.h"
#include "bench/nccl/cuda_abi.h"

namespace nccltune::bench {

// libcuda.so.1, opened and initialised.
class CudaDriver {
 public:
  // Null and *error (kCannotRun) where there is no driver or no GPU.
  static std::unique_ptr<CudaDriver> Open(OpenError* error);

  const cuda::Functions* operator->() const { return &functions_; }

  int devices() const { return devices_; }
  // The newest CUDA version that the driver runs, "13.0".
  const std::string& version() const { return version_; }

  // "out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
  std::string Text(cuda::Result result) const;

  // Nothing if the call went well, else what it was for and the driver's words. Only `kCuda` errors
  // come from here; they are fatal, as a context that failed once is of no more use.
  std::optional<StepError> Check(cuda::Result result, const char* what, int rank) const;

 private:
  CudaDriver() = default;

  cuda::Functions functions_{};
  int devices_ = 0;
  std::string version_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CUDA_DRIVER_H_
