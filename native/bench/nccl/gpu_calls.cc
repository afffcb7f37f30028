// SPDX-License-Identifier: Apache-2.0
// The functions of Gpu that enqueue the collectives.
#include "bench/nccl/gpu.h"
#include "bench/nccl/pattern.h"

namespace nccltune::bench {

// Returns the place in the buffers at which the step starts. Each step starts at another place,
// which recent steps are unlikely to have used. The place is the same on all ranks, because
// registered buffers need equal offsets.
size_t Gpu::FirstPlace(const Step& step) const {
  constexpr uint64_t kStride = 4099;
  return static_cast<size_t>(step.sequence * kStride);
}

std::optional<StepError> Gpu::Call(const Step& step, size_t index) {
  const auto calls = static_cast<size_t>(step.group_calls);
  const size_t groups = buffers_.places(layout_) / calls;
  return CallsFrom(step, (FirstPlace(step) + index) % groups * calls);
}

std::optional<StepError> Gpu::FirstCall(const Step& step) { return CallsFrom(step, 0); }

// The calls of a group use successive places in rising order. NCCL looks up the registration of a
// group at the first call's buffer with the size of all calls together (2.28.9 to 2.30.7).
std::optional<StepError> Gpu::CallsFrom(const Step& step, size_t place) {
  if (step.group_calls == 1) return CallAt(step, buffers_.At(layout_, place));
  if (auto error = NcclCheck(nccl_->ncclGroupStart(), "begin a group")) return error;
  std::optional<StepError> failure;
  for (int call = 0; call < step.group_calls && !failure; ++call) {
    failure = CallAt(step, buffers_.At(layout_, place + static_cast<size_t>(call)));
  }
  // End the group even after an error, because each ncclGroupStart needs an ncclGroupEnd.
  auto ended = NcclCheck(nccl_->ncclGroupEnd(), "end a group");
  return failure ? failure : ended;
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
      return NcclCheck(nccl_->ncclReduce(send, receive, count, type, static_cast<int>(step.redop),
                                         step.root, comm(), stream_),
                       "reduce");
    case Collective::kAllGather:
      return NcclCheck(nccl_->ncclAllGather(send, receive, count, type, comm(), stream_),
                       "all-gather");
    case Collective::kReduceScatter:
      return NcclCheck(nccl_->ncclReduceScatter(send, receive, count, type,
                                                static_cast<int>(step.redop), comm(), stream_),
                       "reduce-scatter");
    case Collective::kAllReduce:
      return NcclCheck(nccl_->ncclAllReduce(send, receive, count, type,
                                            static_cast<int>(step.redop), comm(), stream_),
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
  // End the group even after an error, because each ncclGroupStart needs an ncclGroupEnd.
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

bool Gpu::IsOwnBarrier(const Step& step) {
  switch (step.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return IsSmall(step);
    default:
      return false;
  }
}

std::optional<StepError> Gpu::EnqueueBarrier(const Step& step, size_t index) {
  return IsOwnBarrier(step) ? Call(step, index) : EnqueueBarrierAllReduce();
}

std::optional<StepError> Gpu::EnqueueBarrierAllReduce() {
  auto* const number = reinterpret_cast<void*>(buffers_.barrier_value());
  return NcclCheck(nccl_->ncclAllReduce(number, number, 1, static_cast<int>(Dtype::kFloat),
                                        static_cast<int>(Redop::kMax), comm(), stream_),
                   "bring the ranks together");
}

}  // namespace nccltune::bench
