// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/cuda_driver.h"

namespace nccltune::bench {
namespace {

constexpr const char* kHint =
    "start it on a machine with NVIDIA GPUs and their newest driver, or try a recording: --replay "
    "STUDY";

}  // namespace

std::unique_ptr<CudaLibrary> CudaLibrary::Open(OpenError* error) {
  error->kind = OpenError::Kind::kCannotRun;
  error->hint = kHint;
  std::unique_ptr<CudaLibrary> driver(new CudaLibrary);
  if (const std::string why = cu::Load(cu::kBench, &driver->api_); !why.empty()) {
    error->text = "no GPU: " + why;
    return nullptr;
  }
  const cu::Api& f = driver->api_;
  if (const cu::Result result = f.Init(0); result != cu::kSuccess) {
    error->text = "no GPU: the NVIDIA driver cannot be initialised: " + driver->Text(result);
    return nullptr;
  }
  int version = 0;
  if (f.DriverGetVersion(&version) == cu::kSuccess && version > 0) {
    driver->version_ = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  if (f.DeviceGetCount(&driver->devices_) != cu::kSuccess || driver->devices_ < 1) {
    error->text = "no GPU: the NVIDIA driver shows none";
    return nullptr;
  }
  return driver;
}

std::string CudaLibrary::Text(cu::Result result) const {
  const char* text = nullptr;
  std::string name = cu::NameOf(api_, result);
  if (api_.GetErrorString(result, &text) != cu::kSuccess || text == nullptr) return name;
  return std::string(text) + " (" + name + ")";
}

std::optional<StepError> CudaLibrary::Check(cu::Result result, const char* what, int rank) const {
  if (result == cu::kSuccess) return std::nullopt;
  return StepError{.kind = ErrorKind::kCuda,
                   .text = std::string("CUDA failed to ") + what + ": " + Text(result),
                   .rank = rank,
                   .fatal = true};
}

}  // namespace nccltune::bench
