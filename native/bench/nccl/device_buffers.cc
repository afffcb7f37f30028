// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/device_buffers.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace nccltune::bench {
namespace {

// Bytes of GPU memory left free for other programs and for NCCL, which allocates memory when a
// choice is first used. On small GPUs less is left free.
constexpr size_t kLeftFree = size_t{1} << 30U;
constexpr size_t kGranule = size_t{2} << 20U;  // page size of the GPU
constexpr size_t kWidestElement = 8;
constexpr size_t kBarrierValueBytes = 512;

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* Pointer(cu::Pointer address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

// Formats a size rounded down to the largest unit of which there are at least two: "1536 MiB", "17
// KiB".
std::string Amount(size_t bytes) {
  constexpr const char* kUnits[] = {" bytes", " KiB", " MiB", " GiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >= size_t{2} << 10U) {
    bytes >>= 10U;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace

std::optional<StepError> DeviceBuffers::Open(cu::Device device) {
  int cache = 0;
  cuda_->DeviceGetAttribute(&cache, cu::kL2CacheSize, device);
  min_bytes_ = RoundedUp(2 * static_cast<size_t>(std::max(cache, 1)), kGranule);
  if (auto error = cuda_.Check(cuda_->MemAlloc(&barrier_value_, kBarrierValueBytes),
                               "allocate memory", rank_)) {
    return error;
  }
  return cuda_.Check(cuda_->MemAlloc(&pattern_, kPatternElements * kWidestElement),
                     "allocate memory", rank_);
}

std::optional<StepError> DeviceBuffers::Reserve(const Step& step, const CallLayout& layout,
                                                nccl::Comm comm) {
  const size_t send = RoundedUp(SpanOf(step, layout.send_bytes), kGranule);
  const size_t receive = RoundedUp(SpanOf(step, layout.receive_bytes), kGranule);
  const bool has_kind = receive_.start != 0 && receive_.from_nccl == step.registered;
  if (has_kind && send_.bytes >= send && receive_.bytes >= receive) return std::nullopt;
  if (!has_kind) {
    Free(&send_, comm);
    Free(&receive_, comm);
  }
  size_t free = 0;
  size_t total = 0;
  if (auto error = cuda_.Check(cuda_->MemGetInfo(&free, &total), "ask for memory", rank_)) {
    return error;
  }
  const size_t held = send_.bytes + receive_.bytes;
  const size_t share = total / static_cast<size_t>(ranks_per_gpu_);
  const size_t kept = std::min(kLeftFree, share / 16);
  const size_t most = std::min(free + held, share);
  const size_t available = most > kept ? most - kept : 0;
  // Keep larger buffers, so that alternating sizes do not allocate each time. If memory is short,
  // free them and allocate only the size of this step.
  size_t new_send = std::max({send, send_.bytes, min_bytes_});
  size_t new_receive = std::max({receive, receive_.bytes, min_bytes_});
  if (new_send + new_receive > available) {
    new_send = send;
    new_receive = receive;
    Free(&send_, comm);
    Free(&receive_, comm);
  }
  if (new_send + new_receive > available) {
    return DoesNotFit(step, send + receive, available);
  }
  if (auto error = Grow(&send_, new_send, step.registered, comm)) return error;
  return Grow(&receive_, new_receive, step.registered, comm);
}

std::optional<StepError> DeviceBuffers::DoesNotFit(const Step& step, size_t needed,
                                                   size_t available) const {
  const double share = static_cast<double>(available) / static_cast<double>(needed);
  const auto fitting = static_cast<size_t>(share * static_cast<double>(step.bytes));
  return StepError{.kind = ErrorKind::kMemory,
                   .text = Amount(step.bytes) + " take " + Amount(needed) +
                           " of a GPU's memory, and " + Amount(available) +
                           " are free: " + Amount(fitting) + " would fit",
                   .rank = rank_,
                   .fatal = false};
}

std::optional<StepError> DeviceBuffers::Grow(Buffer* buffer, size_t bytes, bool registered,
                                             nccl::Comm comm) {
  if (buffer->bytes >= bytes) return std::nullopt;
  Free(buffer, comm);
  if (registered) {
    void* start = nullptr;
    if (auto error =
            nccl_.Check(nccl_->ncclMemAlloc(&start, bytes), "allocate memory", rank_, comm)) {
      error->kind = ErrorKind::kMemory;
      error->fatal = false;
      return error;
    }
    buffer->start = static_cast<cu::Pointer>(reinterpret_cast<uintptr_t>(start));
    buffer->from_nccl = true;
    buffer->bytes = bytes;
    return nccl_.Check(nccl_->ncclCommRegister(comm, start, bytes, &buffer->registration),
                       "register a buffer", rank_, comm);
  }
  const cu::Result result = cuda_->MemAlloc(&buffer->start, bytes);
  if (result == cu::kOutOfMemory) {
    buffer->start = 0;
    return StepError{.kind = ErrorKind::kMemory,
                     .text = Amount(bytes) + " of GPU memory could not be allocated",
                     .rank = rank_,
                     .fatal = false};
  }
  if (auto error = cuda_.Check(result, "allocate memory", rank_)) return error;
  buffer->bytes = bytes;
  return std::nullopt;
}

void DeviceBuffers::Free(Buffer* buffer, nccl::Comm comm) {
  if (buffer->start != 0) {
    if (buffer->registration != nullptr && comm != nullptr) {
      nccl_->ncclCommDeregister(comm, buffer->registration);
    }
    if (buffer->from_nccl) {
      nccl_->ncclMemFree(Pointer(buffer->start));
    } else {
      cuda_->MemFree(buffer->start);
    }
  }
  *buffer = {};
}

void DeviceBuffers::Release(nccl::Comm comm) {
  Free(&send_, comm);
  Free(&receive_, comm);
  if (pattern_ != 0) cuda_->MemFree(pattern_);
  if (barrier_value_ != 0) cuda_->MemFree(barrier_value_);
  pattern_ = 0;
  barrier_value_ = 0;
}

std::optional<StepError> DeviceBuffers::Fill(const PatternKey& key, const Bytes& pattern,
                                             cu::Stream stream) {
  if (pattern_key_ != key) {
    pattern_key_.reset();
    if (auto error =
            cuda_.Check(cuda_->MemcpyHtoDAsync(pattern_, pattern.data(), pattern.size(), stream),
                        "copy data to the GPU", rank_)) {
      return error;
    }
    pattern_key_ = key;
    pattern_bytes_ = pattern.size();
  }
  if (send_.holds == key) return std::nullopt;
  send_.holds = key;
  // Each copy doubles the filled memory. Until the last copy, the filled memory is a whole number
  // of patterns.
  size_t done = std::min(pattern_bytes_, send_.bytes);
  cu::Result result = cuda_->MemcpyDtoDAsync(send_.start, pattern_, done, stream);
  while (result == cu::kSuccess && done < send_.bytes) {
    const size_t more = std::min(done, send_.bytes - done);
    result = cuda_->MemcpyDtoDAsync(send_.start + done, send_.start, more, stream);
    done += more;
  }
  return cuda_.Check(result, "copy data on the GPU", rank_);
}

size_t DeviceBuffers::places(const CallLayout& layout) const {
  return std::min(send_.bytes / RoundedUp(layout.send_bytes, kPlaceAlignment),
                  receive_.bytes / RoundedUp(layout.receive_bytes, kPlaceAlignment));
}

CallBuffers DeviceBuffers::At(const CallLayout& layout, size_t place) const {
  return {send_.start + place * RoundedUp(layout.send_bytes, kPlaceAlignment),
          receive_.start + place * RoundedUp(layout.receive_bytes, kPlaceAlignment)};
}

}  // namespace nccltune::bench
