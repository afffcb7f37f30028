// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/gpu.h"

#include <sched.h>

#include "bench/nccl/element.h"

namespace nccltune::bench {
namespace {

// NCCL is asked for asynchronous errors once in so many polls.
constexpr unsigned kPollsPerErrorCheck = 64;

// Bytes that no pattern holds for long.
constexpr unsigned char kSpoilt = 0xa5;

}  // namespace

std::optional<StepError> Gpu::Open() {
  if (auto error = CudaCheck(cuda_->cuDeviceGet(&device_, ordinal_), "find the GPU")) return error;
  // The context that NCCL uses, too.
  if (auto error = CudaCheck(cuda_->cuDevicePrimaryCtxRetain(&context_, device_), "take the GPU")) {
    return error;
  }
  if (auto error = CudaCheck(cuda_->cuCtxSetCurrent(context_), "take the GPU")) return error;
  if (auto error =
          CudaCheck(cuda_->cuStreamCreate(&stream_, cuda::kStreamNonBlocking), "make a stream")) {
    return error;
  }
  for (cuda::Event* const event : {&start_, &end_, &done_}) {
    if (auto error = CudaCheck(cuda_->cuEventCreate(event, cuda::kEventDefault), "make an event")) {
      return error;
    }
  }
  if (auto error =
          CudaCheck(cuda_->cuMemHostAlloc(&host_, kMostCheckedBytes, 0), "allocate host memory")) {
    return error;
  }
  buffers_.emplace(cuda_, nccl_, device_, rank_);
  return buffers_->ReserveMeetingPoint();
}

std::optional<StepError> Gpu::Connect(const nccl::UniqueId& id) {
  nccl::Comm comm = nullptr;
  const nccl::Result result = nccl_->ncclCommInitRank(&comm, ranks_, id, rank_);
  comm_ = result == abi::kSuccess ? comm : nullptr;
  auto error = nccl_.Check(result, "make the communicator", rank_, nullptr);
  if (error) error->fatal = true;
  return error;
}

std::optional<StepError> Gpu::MakePremul(Dtype dtype) {
  if (premul_ && premul_->dtype == dtype) return std::nullopt;
  if (premul_) nccl_->ncclRedOpDestroy(premul_->op, comm());
  premul_.reset();
  unsigned char scalar[8] = {};
  Encode(dtype, PremulScalar(rank_), scalar);
  nccl::RedOp op = 0;
  if (auto error = NcclCheck(nccl_->ncclRedOpCreatePreMulSum(&op, scalar, static_cast<int>(dtype),
                                                             nccl::kScalarHostImmediate, comm()),
                             "make a reduction")) {
    return error;
  }
  premul_ = {dtype, op};
  return std::nullopt;
}

std::optional<StepError> Gpu::Prepare(const Step& step) {
  if (auto error = LayOut(step, rank_, ranks_, &layout_)) return error;
  if (auto error = buffers_->Reserve(step, layout_, comm())) return error;
  if (Reduces(step.collective) && step.redop == Redop::kMulsum) {
    if (auto error = MakePremul(step.dtype)) return error;
  }
  reference_.Use(PatternKey::For(step.collective, step.dtype, step.redop, ranks_));
  if (auto error = buffers_->FillFor(step, reference_.key(), reference_.Pattern(rank_), stream_)) {
    return error;
  }
  return Wait();
}

nccl::RedOp Gpu::RedOpOf(const Step& step) const {
  return step.redop == Redop::kMulsum && premul_ ? premul_->op : static_cast<int>(step.redop);
}

// A step begins where the ones before it are unlikely to have been lately. The same on all ranks,
// because registered buffers want the same offsets.
size_t Gpu::FirstPlace(const Step& step) const {
  constexpr uint64_t kStride = 4099;
  return static_cast<size_t>(step.sequence * kStride);
}

std::optional<StepError> Gpu::Call(const Step& step, size_t index) {
  const size_t place = (FirstPlace(step) + index) % buffers_->places(step, layout_);
  return CallAt(step, buffers_->At(step, layout_, place));
}

std::optional<StepError> Gpu::CallForCheck(const Step& step) {
  return CallAt(step, buffers_->At(step, layout_, 0));
}

std::optional<StepError> Gpu::CallAt(const Step& step, const CallBuffers& buffers) {
  const auto* const send = reinterpret_cast<const void*>(buffers.send);
  auto* const receive = reinterpret_cast<void*>(buffers.receive);
  const auto type = static_cast<nccl::DataType>(step.dtype);
  const size_t count = layout_.count;
  switch (step.collective) {
    case Collective::kBroadcast:
      return NcclCheck(nccl_->ncclBroadcast(send, receive, count, type, step.root, comm(), stream_),
                       "broadcast");
    case Collective::kReduce:
      return NcclCheck(
          nccl_->ncclReduce(send, receive, count, type, RedOpOf(step), step.root, comm(), stream_),
          "reduce");
    case Collective::kAllGather:
      return NcclCheck(nccl_->ncclAllGather(send, receive, count, type, comm(), stream_),
                       "all-gather");
    case Collective::kReduceScatter:
      return NcclCheck(
          nccl_->ncclReduceScatter(send, receive, count, type, RedOpOf(step), comm(), stream_),
          "reduce-scatter");
    case Collective::kAllReduce:
      return NcclCheck(
          nccl_->ncclAllReduce(send, receive, count, type, RedOpOf(step), comm(), stream_),
          "all-reduce");
    case Collective::kSendRecv:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return GroupedCall(step, buffers);
  }
  return std::nullopt;
}

std::optional<StepError> Gpu::GroupedCall(const Step& step, const CallBuffers& buffers) {
  if (auto error = NcclCheck(nccl_->ncclGroupStart(), "begin a group")) return error;
  const nccl::Result result = SendAndReceive(step, buffers);
  // Even after an error: NCCL keeps count of what was begun.
  const nccl::Result ended = nccl_->ncclGroupEnd();
  return NcclCheck(result != abi::kSuccess ? result : ended, "send and receive");
}

nccl::Result Gpu::SendAndReceive(const Step& step, const CallBuffers& buffers) {
  const auto type = static_cast<nccl::DataType>(step.dtype);
  const size_t count = layout_.count;
  const size_t part = count * static_cast<size_t>(SizeOf(step.dtype));
  const auto send_part = [&](int peer, size_t index) {
    return nccl_->ncclSend(reinterpret_cast<const void*>(buffers.send + index * part), count, type,
                           peer, comm(), stream_);
  };
  const auto receive_part = [&](int peer, size_t index) {
    return nccl_->ncclRecv(reinterpret_cast<void*>(buffers.receive + index * part), count, type,
                           peer, comm(), stream_);
  };
  nccl::Result result = abi::kSuccess;
  const auto keep = [&result](nccl::Result next) {
    if (result == abi::kSuccess) result = next;
  };
  const auto for_all = [&](const auto& transfer) {
    for (int peer = 0; peer < ranks_; ++peer) keep(transfer(peer, static_cast<size_t>(peer)));
  };
  switch (step.collective) {
    case Collective::kSendRecv:
      keep(send_part((rank_ + 1) % ranks_, 0));
      keep(receive_part((rank_ + ranks_ - 1) % ranks_, 0));
      break;
    case Collective::kAllToAll:
      for_all(send_part);
      for_all(receive_part);
      break;
    case Collective::kGather:
      keep(send_part(step.root, 0));
      if (rank_ == step.root) for_all(receive_part);
      break;
    case Collective::kScatter:
      if (rank_ == step.root) for_all(send_part);
      keep(receive_part(step.root, 0));
      break;
    default:
      break;
  }
  return result;
}

bool Gpu::MeetsByItself(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
}

std::optional<StepError> Gpu::Meet(const Step& step, size_t index) {
  return MeetsByItself(step.collective) ? Call(step, index) : MeetBySum();
}

std::optional<StepError> Gpu::MeetBySum() {
  auto* const number = reinterpret_cast<void*>(buffers_->meeting_point());
  return NcclCheck(nccl_->ncclAllReduce(number, number, 1, static_cast<int>(Dtype::kFloat),
                                        static_cast<int>(Redop::kMax), comm(), stream_),
                   "bring the ranks together");
}

std::optional<StepError> Gpu::Wait() {
  if (auto error = CudaCheck(cuda_->cuEventRecord(done_, stream_), "record an event")) return error;
  return PollFor(done_);
}

std::optional<StepError> Gpu::PollFor(cuda::Event event) {
  for (unsigned polls = 1;; ++polls) {
    const cuda::Result result = cuda_->cuEventQuery(event);
    if (result == cuda::kSuccess) return std::nullopt;
    if (result != cuda::kNotReady) return CudaCheck(result, "finish what was launched");
    if (stop_) return StepError{ErrorKind::kDied, "stopped", rank_, true};
    if (polls % kPollsPerErrorCheck == 0 && comm() != nullptr) {
      nccl::Result asynchronous = abi::kSuccess;
      nccl_->ncclCommGetAsyncError(comm(), &asynchronous);
      if (asynchronous != abi::kSuccess && asynchronous != abi::kInProgress) {
        auto error = NcclCheck(asynchronous, "finish what was launched");
        error->fatal = true;
        return error;
      }
    }
    sched_yield();
  }
}

std::optional<StepError> Gpu::RecordStart() {
  return CudaCheck(cuda_->cuEventRecord(start_, stream_), "record an event");
}

std::optional<StepError> Gpu::RecordEndAndWait() {
  if (auto error = CudaCheck(cuda_->cuEventRecord(end_, stream_), "record an event")) return error;
  return PollFor(end_);
}

std::optional<StepError> Gpu::Elapsed(double* us) const {
  float milliseconds = 0;
  auto error = CudaCheck(cuda_->cuEventElapsedTime(&milliseconds, start_, end_), "read the time");
  *us = 1e3 * static_cast<double>(milliseconds);
  return error;
}

std::optional<StepError> Gpu::BeginCapture() {
  return CudaCheck(cuda_->cuStreamBeginCapture_v2(stream_, cuda::kCaptureThreadLocal),
                   "begin a graph");
}

std::optional<StepError> Gpu::EndCapture(cuda::GraphExec* graph) {
  cuda::Graph captured = nullptr;
  if (auto error = CudaCheck(cuda_->cuStreamEndCapture(stream_, &captured), "make a graph")) {
    return error;
  }
  const cuda::Result result = cuda_->cuGraphInstantiateWithFlags(graph, captured, 0);
  cuda_->cuGraphDestroy(captured);
  return CudaCheck(result, "make a graph");
}

std::optional<StepError> Gpu::Launch(cuda::GraphExec graph) {
  return CudaCheck(cuda_->cuGraphLaunch(graph, stream_), "launch a graph");
}

std::optional<StepError> Gpu::PrepareCheck(const Step& step) {
  const CallBuffers at = buffers_->At(step, layout_, 0);
  if (auto error =
          CudaCheck(cuda_->cuMemsetD8Async(at.receive, kSpoilt, layout_.receive_bytes, stream_),
                    "spoil the result")) {
    return error;
  }
  // Out of place, what is sent was never written to.
  return step.in_place ? buffers_->Repeat(at.send, layout_.send_bytes, stream_) : std::nullopt;
}

std::optional<StepError> Gpu::Check(const Step& step, int64_t* wrong) {
  *wrong = 0;
  const std::vector<ResultPart> parts = ResultOf(step, layout_, rank_, ranks_);
  if (parts.empty()) return Wait();
  const std::vector<Window> windows =
      WindowsOf(layout_.receive_bytes, static_cast<size_t>(SizeOf(step.dtype)), step.sequence);
  const CallBuffers at = buffers_->At(step, layout_, 0);
  auto* const host = static_cast<unsigned char*>(host_);
  size_t used = 0;
  for (const Window& window : windows) {
    if (auto error = CudaCheck(cuda_->cuMemcpyDtoHAsync_v2(host + used, at.receive + window.offset,
                                                           window.bytes, stream_),
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
  if (premul_) nccl_->ncclRedOpDestroy(premul_->op, comm());
  premul_.reset();
  if (buffers_) buffers_->Release(comm());
  const nccl::Comm last = comm_.exchange(nullptr);
  std::optional<StepError> error;
  if (last != nullptr) {
    error = nccl_.Check(nccl_->ncclCommDestroy(last), "end the communicator", rank_, nullptr);
  }
  Release();
  return error;
}

void Gpu::Release() {
  if (context_ == nullptr) return;
  if (buffers_) buffers_->Release(nullptr);
  buffers_.reset();
  if (host_ != nullptr) cuda_->cuMemFreeHost(host_);
  for (const cuda::Event event : {start_, end_, done_}) {
    if (event != nullptr) cuda_->cuEventDestroy_v2(event);
  }
  if (stream_ != nullptr) cuda_->cuStreamDestroy_v2(stream_);
  cuda_->cuDevicePrimaryCtxRelease_v2(device_);
  context_ = nullptr;
}

void Gpu::Abort() noexcept {
  const nccl::Comm last = comm_.exchange(nullptr);
  if (last != nullptr) nccl_->ncclCommAbort(last);
}

}  // namespace nccltune::bench
