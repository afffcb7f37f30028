// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/load.h"

#include <sched.h>

#include <algorithm>

namespace nccltune::bench {
namespace {

using Failure = std::optional<StepError>;

constexpr unsigned kThreads = 256;
// Eight blocks of kThreads threads fill an SM of 2048 threads. On a GPU with smaller SMs some
// blocks wait.
constexpr unsigned kBlocksPerSm = 8;
constexpr unsigned kFirstRounds = 4096;
constexpr double kMicroseconds = 100;  // target duration of one kernel
constexpr double kMaxRounds = 1 << 24;

// A kernel that multiplies and adds in registers. It is written for the oldest GPUs that current
// NCCL supports; the driver compiles it for the actual GPU.
constexpr char kKernel[] = R"ptx(
.version 6.4
.target sm_60
.address_size 64
.visible .entry nccltune_load(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .f32 %f<10>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
  cvt.rn.f32.u32 %f1, %r2;
  mov.f32 %f2, 0f3F800001;
  mov.f32 %f3, 0f3F800002;
  mov.f32 %f4, 0f3F800003;
  mov.f32 %f5, 0f3F800004;
  mov.f32 %f6, 0f3F800005;
  mov.f32 %f7, 0f3F800006;
  mov.f32 %f8, 0f3F800007;
  mov.f32 %f9, 0f3F000000;
  mov.u32 %r3, 0;
NEXT:
  fma.rn.f32 %f1, %f1, %f9, %f2;
  fma.rn.f32 %f2, %f2, %f9, %f3;
  fma.rn.f32 %f3, %f3, %f9, %f4;
  fma.rn.f32 %f4, %f4, %f9, %f5;
  fma.rn.f32 %f5, %f5, %f9, %f6;
  fma.rn.f32 %f6, %f6, %f9, %f7;
  fma.rn.f32 %f7, %f7, %f9, %f8;
  fma.rn.f32 %f8, %f8, %f9, %f1;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p1, %r3, %r1;
  @%p1 bra NEXT;
  add.f32 %f1, %f1, %f2;
  add.f32 %f3, %f3, %f4;
  add.f32 %f5, %f5, %f6;
  add.f32 %f7, %f7, %f8;
  add.f32 %f1, %f1, %f3;
  add.f32 %f5, %f5, %f7;
  add.f32 %f1, %f1, %f5;
  setp.eq.f32 %p2, %f1, 0fFF7FFFFF;
  @%p2 st.global.f32 [%rd1], %f1;
  ret;
}
)ptx";

}  // namespace

Failure ComputeLoad::Open(cu::Device device) {
  if (function_ != nullptr) return std::nullopt;
  int multiprocessors = 0;
  if (auto error = Check(cuda_->DeviceGetAttribute(&multiprocessors, cu::kMultiprocessors, device),
                         "ask for its SMs")) {
    return error;
  }
  blocks_ = static_cast<unsigned>(std::max(multiprocessors, 1)) * kBlocksPerSm;
  if (auto error = Check(cuda_->ModuleLoadData(&module_, kKernel), "compile a kernel")) {
    return error;
  }
  if (auto error = Check(cuda_->StreamCreate(&stream_, cu::kStreamNonBlocking), "make a stream")) {
    return error;
  }
  for (cu::Event& event : events_) {
    if (auto error = Check(cuda_->EventCreate(&event, cu::kEventDefault), "make an event")) {
      return error;
    }
  }
  if (auto error = Check(cuda_->MemAlloc(&out_, sizeof(float)), "allocate memory")) {
    return error;
  }
  cu::Function function = nullptr;
  if (auto error =
          Check(cuda_->ModuleGetFunction(&function, module_, "nccltune_load"), "find a kernel")) {
    return error;
  }
  function_ = function;
  return Calibrate();
}

Failure ComputeLoad::Launch() {
  void* parameters[] = {&out_, &rounds_};
  if (auto error = Check(cuda_->LaunchKernel(function_, blocks_, 1, 1, kThreads, 1, 1, 0, stream_,
                                             parameters, nullptr),
                         "compute beside the calls")) {
    return error;
  }
  return Check(cuda_->EventRecord(events_[begun_++ % kEnqueued], stream_), "record an event");
}

// Runs eight kernels and measures the last four. When the fifth kernel starts, the code is loaded
// and the clocks are high.
Failure ComputeLoad::Calibrate() {
  rounds_ = kFirstRounds;
  begun_ = ended_ = 0;
  for (int i = 0; i < 8; ++i) {
    if (auto error = Launch()) return error;
  }
  if (auto error = Stop()) return error;
  float milliseconds = 0;
  if (auto error =
          Check(cuda_->EventElapsedTime(&milliseconds, events_[3], events_[7]), "read the time")) {
    return error;
  }
  const double us = std::max(1e3 * static_cast<double>(milliseconds) / 4, 0.1);
  rounds_ = static_cast<unsigned>(std::clamp(kFirstRounds * kMicroseconds / us, 1.0, kMaxRounds));
  return std::nullopt;
}

Failure ComputeLoad::Start() {
  begun_ = ended_ = 0;
  running_ = true;
  for (size_t i = 0; i < kEnqueued; ++i) {
    if (auto error = Launch()) return error;
  }
  return std::nullopt;
}

Failure ComputeLoad::Feed() {
  while (ended_ < begun_) {
    const cu::Result result = cuda_->EventQuery(events_[ended_ % kEnqueued]);
    if (result == cu::kNotReady) return std::nullopt;
    if (auto error = Check(result, "compute beside the calls")) return error;
    ++ended_;
    if (!running_) continue;
    if (auto error = Launch()) return error;
  }
  return std::nullopt;
}

// Waits for the enqueued kernels, which end soon because each takes about 100 us.
Failure ComputeLoad::Stop() {
  running_ = false;
  while (ended_ < begun_) {
    if (auto error = Feed()) return error;
    sched_yield();
  }
  return std::nullopt;
}

void ComputeLoad::Release() {
  for (cu::Event& event : events_) {
    if (event != nullptr) cuda_->EventDestroy(event);
    event = nullptr;
  }
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
  if (out_ != 0) cuda_->MemFree(out_);
  if (module_ != nullptr) cuda_->ModuleUnload(module_);
  stream_ = nullptr;
  out_ = 0;
  module_ = nullptr;
  function_ = nullptr;
}

}  // namespace nccltune::bench
