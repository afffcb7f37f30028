// SPDX-License-Identifier: Apache-2.0
// GPU resources, waiting, timing and checking. gpu_calls.cc has the collectives.
#include "bench/nccl/gpu.h"

#include <sched.h>

namespace nccltune::bench {
namespace {

// NCCL is asked for asynchronous errors once in this many polls.
constexpr unsigned kPollsPerErrorCheck = 64;

// Written over the result region before a check, so that bytes which NCCL does not write are wrong.
// No pattern has a long run of this byte.
constexpr unsigned char kOverwritten = 0xa5;

}  // namespace

std::optional<StepError> Gpu::Open() {
  if (auto error = CudaCheck(cuda_->DeviceGet(&device_, ordinal_), "find the GPU")) return error;
  // Use the primary context, because NCCL uses it too.
  if (auto error = CudaCheck(cuda_->DevicePrimaryCtxRetain(&context_, device_), "take the GPU")) {
    return error;
  }
  if (auto error = CudaCheck(cuda_->CtxSetCurrent(context_), "take the GPU")) return error;
  if (auto error =
          CudaCheck(cuda_->StreamCreate(&stream_, cu::kStreamNonBlocking), "make a stream")) {
    return error;
  }
  for (cu::Event* const event : {&start_, &end_, &done_}) {
    if (auto error = CudaCheck(cuda_->EventCreate(event, cu::kEventDefault), "make an event")) {
      return error;
    }
  }
  if (auto error =
          CudaCheck(cuda_->MemHostAlloc(&host_, kMaxCheckedBytes, 0), "allocate host memory")) {
    return error;
  }
  return buffers_.Open(device_);
}

std::optional<StepError> Gpu::Connect(const nccl::UniqueId& id) {
  nccl::Comm comm = nullptr;
  const nccl::Result result = nccl_->ncclCommInitRank(&comm, ranks_, id, rank_);
  comm_ = result == abi::kSuccess ? comm : nullptr;
  auto error = nccl_.Check(result, "make the communicator", rank_, nullptr);
  if (error) error->fatal = true;
  return error;
}

std::optional<StepError> Gpu::Prepare(const Step& step) {
  if (auto error = LayOut(step, ranks_, &layout_)) return error;
  if (auto error = buffers_.Reserve(step, layout_, comm())) return error;
  reference_.Use(PatternKey::For(step.collective, step.dtype, step.redop, ranks_));
  if (auto error = buffers_.Fill(reference_.key(), reference_.Pattern(rank_), stream_)) {
    return error;
  }
  return Wait();
}

std::optional<StepError> Gpu::Wait() {
  if (auto error = CudaCheck(cuda_->EventRecord(done_, stream_), "record an event")) return error;
  return PollFor(done_);
}

std::optional<StepError> Gpu::PollFor(cu::Event event) {
  for (unsigned polls = 1;; ++polls) {
    const cu::Result result = cuda_->EventQuery(event);
    if (result == cu::kSuccess) return std::nullopt;
    if (result != cu::kNotReady) return CudaCheck(result, "finish what was launched");
    if (auto error = FeedLoad()) return error;
    if (stop_) return StepError{ErrorKind::kDied, "stopped", rank_, true};
    if (polls % kPollsPerErrorCheck == 0 && comm() != nullptr) {
      nccl::Result asynchronous = abi::kSuccess;
      nccl_->ncclCommGetAsyncError(comm(), &asynchronous);
      if (asynchronous != abi::kSuccess && asynchronous != abi::kInProgress) {
        StepError error = nccl_.FailureOf(asynchronous, "finish what was launched", rank_, comm());
        error.fatal = true;
        return error;
      }
    }
    sched_yield();
  }
}

std::optional<StepError> Gpu::StartLoad() {
  if (load_ == nullptr) load_ = std::make_unique<ComputeLoad>(cuda_, rank_);
  if (auto error = load_->Open(device_)) return error;
  return load_->Start();
}

std::optional<StepError> Gpu::FeedLoad() {
  if (stop_) return StepError{ErrorKind::kDied, "stopped", rank_, true};
  return load_ != nullptr && load_->running() ? load_->Feed() : std::nullopt;
}

std::optional<StepError> Gpu::StopLoad() { return load_->Stop(); }

std::optional<StepError> Gpu::RecordStart() {
  return CudaCheck(cuda_->EventRecord(start_, stream_), "record an event");
}

std::optional<StepError> Gpu::RecordEndAndWait() {
  if (auto error = CudaCheck(cuda_->EventRecord(end_, stream_), "record an event")) return error;
  return PollFor(end_);
}

std::optional<StepError> Gpu::Elapsed(double* us) const {
  float milliseconds = 0;
  auto error = CudaCheck(cuda_->EventElapsedTime(&milliseconds, start_, end_), "read the time");
  *us = 1e3 * static_cast<double>(milliseconds);
  return error;
}

std::optional<StepError> Gpu::BeginCapture() {
  return CudaCheck(cuda_->StreamBeginCapture(stream_, cu::kCaptureThreadLocal), "begin a graph");
}

std::optional<StepError> Gpu::EndCapture(cu::GraphExec* graph) {
  cu::Graph captured = nullptr;
  if (auto error = CudaCheck(cuda_->StreamEndCapture(stream_, &captured), "make a graph")) {
    return error;
  }
  const cu::Result result = cuda_->GraphInstantiateWithFlags(graph, captured, 0);
  cuda_->GraphDestroy(captured);
  return CudaCheck(result, "make a graph");
}

std::optional<StepError> Gpu::Launch(cu::GraphExec graph) {
  return CudaCheck(cuda_->GraphLaunch(graph, stream_), "launch a graph");
}

std::optional<StepError> Gpu::PrepareCheck(const Step& step) {
  for (int call = 0; call < step.group_calls; ++call) {
    const CallBuffers at = buffers_.At(layout_, static_cast<size_t>(call));
    if (auto error = CudaCheck(
            cuda_->MemsetD8Async(at.receive, kOverwritten, layout_.receive_bytes, stream_),
            "spoil the result")) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<StepError> Gpu::Check(const Step& step, int64_t* wrong) {
  *wrong = 0;
  for (int call = 0; call < step.group_calls; ++call) {
    if (auto error = CheckPlace(step, static_cast<size_t>(call), wrong)) return error;
  }
  return std::nullopt;
}

// Adds the number of wrong elements of the result on `place` to *wrong.
std::optional<StepError> Gpu::CheckPlace(const Step& step, size_t place, int64_t* wrong) {
  const auto element = static_cast<size_t>(SizeOf(step.dtype));
  std::vector<ResultPart> parts = ResultOf(step, layout_, rank_, ranks_);
  if (parts.empty()) return Wait();
  // The pattern fills the send buffer without a gap, so another place starts within the pattern.
  const size_t start =
      place * SpanOf(step, layout_.send_bytes) / static_cast<size_t>(step.group_calls) / element;
  for (ResultPart& part : parts) part.first += start;
  const std::vector<Window> windows = WindowsOf(layout_.receive_bytes, element, step.sequence);
  const CallBuffers at = buffers_.At(layout_, place);
  auto* const host = static_cast<unsigned char*>(host_);
  size_t used = 0;
  for (const Window& window : windows) {
    if (auto error = CudaCheck(
            cuda_->MemcpyDtoHAsync(host + used, at.receive + window.offset, window.bytes, stream_),
            "copy the result")) {
      return error;
    }
    used += window.bytes;
  }
  if (auto error = Wait()) return error;
  used = 0;
  for (const Window& window : windows) {
    *wrong += reference_.CountWrong(parts, window.offset, host + used, window.bytes);
    used += window.bytes;
  }
  return std::nullopt;
}

std::optional<StepError> Gpu::Close() {
  buffers_.Release(comm());
  nccl::Comm last = comm_.exchange(nullptr);
  std::optional<StepError> error;
  if (last != nullptr) {
    error = nccl_.Check(nccl_->ncclCommDestroy(last), "end the communicator", rank_, nullptr);
  }
  Release();
  return error;
}

void Gpu::Release() {
  if (context_ == nullptr) return;
  buffers_.Release(nullptr);
  load_.reset();
  if (host_ != nullptr) cuda_->MemFreeHost(host_);
  for (cu::Event event : {start_, end_, done_}) {
    if (event != nullptr) cuda_->EventDestroy(event);
  }
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
  cuda_->DevicePrimaryCtxRelease(device_);
  context_ = nullptr;
}

void Gpu::Abort() noexcept {
  nccl::Comm last = comm_.exchange(nullptr);
  if (last != nullptr) nccl_->ncclCommAbort(last);
}

}  // namespace nccltune::bench
