// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/traffic.h"

#include <string>

namespace nccltune::bench {
namespace {

using Failure = std::optional<StepError>;

// Number of warm-up exchanges. A library that interposes on NCCL, such as ours, passes the first
// messages of each pair of ranks and each allocation on to NCCL. So the first exchanges are not
// typical.
constexpr int kWarmUps = 6;
constexpr unsigned kPollsPerErrorCheck = 16;

const void* Address(cu::Pointer pointer) {
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
            CudaCheck(cuda_->StreamCreate(&stream_, cu::kStreamNonBlocking), "make a stream")) {
      return error;
    }
    for (cu::Event& event : events_) {
      if (auto error = CudaCheck(cuda_->EventCreate(&event, cu::kEventDefault), "make an event")) {
        return error;
      }
    }
  }
  if (bytes <= reserved_) return std::nullopt;
  for (cu::Pointer* const buffer : {&send_, &receive_}) {
    if (*buffer != 0) cuda_->MemFree(*buffer);
    *buffer = 0;
  }
  reserved_ = 0;
  for (cu::Pointer* const buffer : {&send_, &receive_}) {
    const cu::Result result = cuda_->MemAlloc(buffer, bytes);
    if (result == cu::kOutOfMemory) {
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
    if (auto error = ExchangeMessages()) return error;
    if (auto error = WaitUntil(begun_)) return error;
  }
  return std::nullopt;
}

Failure Traffic::Start(cu::Context context, size_t bytes) {
  context_ = context;
  bytes_ = bytes;
  begun_ = ended_ = 0;
  progress_ = {};
  failure_.reset();
  pause_ = false;
  thread_ = std::thread([this] { Loop(); });
  return std::nullopt;
}

void Traffic::Loop() {
  Failure failure = CudaCheck(cuda_->CtxSetCurrent(context_), "take the GPU");
  while (!failure && !pause_ && !stop_) {
    if (begun_ - ended_ < kEnqueued) {
      failure = ExchangeMessages();
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
    if (!failure) failure = Collect();
  }
  const std::scoped_lock lock(mutex_);
  failure_ = std::move(failure);
}

Failure Traffic::ExchangeMessages() {
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
  return CudaCheck(cuda_->EventRecord(events_[begun_++ % events_.size()], stream_),
                   "record an event");
}

Failure Traffic::Collect() {
  while (ended_ < begun_) {
    cu::Event event = events_[ended_ % events_.size()];
    const cu::Result result = cuda_->EventQuery(event);
    if (result == cu::kNotReady) return std::nullopt;
    if (auto error = CudaCheck(result, "exchange beside the calls")) return error;
    if (ended_ > 0) {
      float milliseconds = 0;
      if (auto error = CudaCheck(
              cuda_->EventElapsedTime(&milliseconds, events_[(ended_ - 1) % events_.size()], event),
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
  for (unsigned polls = 1;; ++polls) {
    if (auto error = Collect()) return error;
    if (ended_ >= ended) return std::nullopt;
    nccl::Comm comm = comm_;
    if (stop_ || comm == nullptr) return StepError{ErrorKind::kDied, "stopped", rank_, true};
    if (polls % kPollsPerErrorCheck == 0) {
      nccl::Result asynchronous = abi::kSuccess;
      nccl_->ncclCommGetAsyncError(comm, &asynchronous);
      if (asynchronous != abi::kSuccess && asynchronous != abi::kInProgress) {
        StepError error = nccl_.FailureOf(asynchronous, "exchange beside the calls", rank_, comm);
        error.fatal = true;
        return error;
      }
    }
    std::this_thread::sleep_for(kPollInterval);
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
    if (auto error = ExchangeMessages()) return error;
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
  for (cu::Event& event : events_) {
    if (event != nullptr) cuda_->EventDestroy(event);
    event = nullptr;
  }
  for (cu::Pointer* const buffer : {&send_, &receive_}) {
    if (*buffer != 0) cuda_->MemFree(*buffer);
    *buffer = 0;
  }
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
  stream_ = nullptr;
  reserved_ = 0;
}

}  // namespace nccltune::bench
