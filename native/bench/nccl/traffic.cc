// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/traffic.h"

#include <string>

namespace nccltune::bench {
namespace {

using Failure = std::optional<StepError>;

// A library before NCCL leaves it the first messages of a pair and of an allocation.
constexpr int kWarmUps = 6;
constexpr unsigned kLooksPerErrorCheck = 16;

const void* Address(cuda::DevicePointer pointer) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(pointer));
}

}  // namespace

Traffic::~Traffic() {
  pause_ = true;
  if (thread_.joinable()) thread_.join();
  Release();
}

Failure Traffic::Reserve(size_t bytes) {
  if (stream_ == nullptr) {
    if (auto error =
            CudaCheck(cuda_->cuStreamCreate(&stream_, cuda::kStreamNonBlocking), "make a stream")) {
      return error;
    }
    for (cuda::Event& event : events_) {
      if (auto error =
              CudaCheck(cuda_->cuEventCreate(&event, cuda::kEventDefault), "make an event")) {
        return error;
      }
    }
  }
  if (bytes <= reserved_) return std::nullopt;
  for (cuda::DevicePointer* const buffer : {&send_, &receive_}) {
    if (*buffer != 0) cuda_->cuMemFree_v2(*buffer);
    *buffer = 0;
  }
  reserved_ = 0;
  for (cuda::DevicePointer* const buffer : {&send_, &receive_}) {
    const cuda::Result result = cuda_->cuMemAlloc_v2(buffer, bytes);
    if (result == cuda::kOutOfMemory) {
      *buffer = 0;
      return StepError{.kind = ErrorKind::kMemory,
                       .text = "traffic of " + std::to_string(bytes) +
                               " bytes takes twice as much of a GPU's memory, and there is less",
                       .rank = rank_,
                       .fatal = false};
    }
    if (auto error = CudaCheck(result, "allocate memory")) return error;
  }
  reserved_ = bytes;
  return std::nullopt;
}

Failure Traffic::Connect(const nccl::UniqueId& id) {
  nccl::Comm comm = nullptr;
  const nccl::Result result = nccl_->ncclCommInitRank(&comm, ranks_, id, rank_);
  comm_ = result == abi::kSuccess ? comm : nullptr;
  auto error = nccl_.Check(result, "make a communicator for traffic", rank_, nullptr);
  if (error) error->fatal = true;
  return error;
}

Failure Traffic::WarmUp(size_t bytes) {
  bytes_ = bytes;
  begun_ = ended_ = 0;
  for (int i = 0; i < kWarmUps; ++i) {
    if (auto error = Exchange()) return error;
    if (auto error = WaitUntil(begun_)) return error;
  }
  return std::nullopt;
}

Failure Traffic::Start(cuda::Context context, size_t bytes) {
  context_ = context;
  bytes_ = bytes;
  begun_ = ended_ = 0;
  progress_ = {};
  failure_.reset();
  pause_ = false;
  thread_ = std::thread([this] { Go(); });
  return std::nullopt;
}

void Traffic::Go() {
  Failure failure = CudaCheck(cuda_->cuCtxSetCurrent(context_), "take the GPU");
  while (!failure && !pause_ && !stop_) {
    if (begun_ - ended_ < kEnqueued) {
      failure = Exchange();
    } else {
      std::this_thread::sleep_for(kLook);
    }
    if (!failure) failure = Collect();
  }
  const std::scoped_lock lock(mutex_);
  failure_ = std::move(failure);
}

Failure Traffic::Exchange() {
  nccl::Comm comm = comm_;
  if (comm == nullptr) return StepError{ErrorKind::kDied, "stopped", rank_, true};
  const auto type = static_cast<nccl::DataType>(Dtype::kInt8);
  nccl::Result result = nccl_->ncclGroupStart();
  if (result == abi::kSuccess) {
    result = nccl_->ncclSend(Address(send_), bytes_, type, (rank_ + 1) % ranks_, comm, stream_);
    if (result == abi::kSuccess) {
      result = nccl_->ncclRecv(const_cast<void*>(Address(receive_)), bytes_, type,
                               (rank_ + ranks_ - 1) % ranks_, comm, stream_);
    }
    const nccl::Result ended = nccl_->ncclGroupEnd();
    if (result == abi::kSuccess) result = ended;
  }
  if (auto error = nccl_.Check(result, "exchange beside the calls", rank_, comm)) {
    error->fatal = true;
    return error;
  }
  return CudaCheck(cuda_->cuEventRecord(events_[begun_++ % events_.size()], stream_),
                   "record an event");
}

Failure Traffic::Collect() {
  while (ended_ < begun_) {
    cuda::Event event = events_[ended_ % events_.size()];
    const cuda::Result result = cuda_->cuEventQuery(event);
    if (result == cuda::kNotReady) return std::nullopt;
    if (auto error = CudaCheck(result, "exchange beside the calls")) return error;
    if (ended_ > 0) {
      float milliseconds = 0;
      if (auto error = CudaCheck(cuda_->cuEventElapsedTime(
                                     &milliseconds, events_[(ended_ - 1) % events_.size()], event),
                                 "read the time")) {
        return error;
      }
      const std::scoped_lock lock(mutex_);
      ++progress_.exchanges;
      progress_.us += 1e3 * static_cast<double>(milliseconds);
    }
    ++ended_;
  }
  return std::nullopt;
}

Failure Traffic::WaitUntil(uint64_t ended) {
  for (unsigned looks = 1;; ++looks) {
    if (auto error = Collect()) return error;
    if (ended_ >= ended) return std::nullopt;
    nccl::Comm comm = comm_;
    if (stop_ || comm == nullptr) return StepError{ErrorKind::kDied, "stopped", rank_, true};
    if (looks % kLooksPerErrorCheck == 0) {
      nccl::Result asynchronous = abi::kSuccess;
      nccl_->ncclCommGetAsyncError(comm, &asynchronous);
      if (asynchronous != abi::kSuccess && asynchronous != abi::kInProgress) {
        StepError error = nccl_.FailureOf(asynchronous, "exchange beside the calls", rank_, comm);
        error.fatal = true;
        return error;
      }
    }
    std::this_thread::sleep_for(kLook);
  }
}

Traffic::Progress Traffic::progress() {
  const std::scoped_lock lock(mutex_);
  return progress_;
}

Failure Traffic::failure() {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

Failure Traffic::Pause(uint64_t* begun) {
  pause_ = true;
  if (thread_.joinable()) thread_.join();
  *begun = begun_;
  return failure();
}

Failure Traffic::Finish(uint64_t most) {
  while (begun_ < most) {
    if (begun_ >= kEnqueued) {
      if (auto error = WaitUntil(begun_ - kEnqueued + 1)) return error;
    }
    if (auto error = Exchange()) return error;
  }
  return WaitUntil(begun_);
}

Failure Traffic::Close() {
  nccl::Comm last = comm_.exchange(nullptr);
  Failure error;
  if (last != nullptr) {
    error = nccl_.Check(nccl_->ncclCommDestroy(last), "end the communicator of traffic", rank_,
                        nullptr);
  }
  Release();
  return error;
}

void Traffic::Abort() noexcept {
  nccl::Comm last = comm_.exchange(nullptr);
  if (last != nullptr) nccl_->ncclCommAbort(last);
}

void Traffic::Release() {
  for (cuda::Event& event : events_) {
    if (event != nullptr) cuda_->cuEventDestroy_v2(event);
    event = nullptr;
  }
  for (cuda::DevicePointer* const buffer : {&send_, &receive_}) {
    if (*buffer != 0) cuda_->cuMemFree_v2(*buffer);
    *buffer = 0;
  }
  if (stream_ != nullptr) cuda_->cuStreamDestroy_v2(stream_);
  stream_ = nullptr;
  reserved_ = 0;
}

}  // namespace nccltune::bench
