// SPDX-License-Identifier: Apache-2.0
// The send and receive buffers of a GPU. If GPU memory suffices, they grow to the largest step so
// far and are at least twice as large as the L2 cache. Successive calls use different offsets, so
// that no call finds its data in the cache.
#pragma once

#include <cstddef>
#include <optional>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/pattern.h"

namespace nccltune::bench {

struct CallBuffers {
  cu::Pointer send = 0;
  cu::Pointer receive = 0;
};

// All functions need the GPU's context to be current.
class DeviceBuffers {
 public:
  // `ranks_per_gpu` ranks share the GPU. The buffers of each rank take at most an equal share of
  // the GPU's memory.
  DeviceBuffers(const CudaLibrary& cuda, const NcclLibrary& nccl, int rank, int ranks_per_gpu)
      : cuda_(cuda), nccl_(nccl), rank_(rank), ranks_per_gpu_(ranks_per_gpu) {}
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // Allocates the memory that every step needs. Call Open before the other functions.
  std::optional<StepError> Open(cu::Device device);

  // Grows the buffers for the step if they are too small; no running call may use the buffers. With
  // `registered`, the memory comes from ncclMemAlloc and is registered with the communicator. If
  // memory is short, returns the error kMemory, which is not fatal.
  std::optional<StepError> Reserve(const Step& step, const CallLayout& layout, nccl::Comm comm);

  // Enqueues copies of the rank's pattern that fill the send buffer, unless it holds the pattern
  // already.
  std::optional<StepError> Fill(const PatternKey& key, const Bytes& pattern, cu::Stream stream);

  // A place is a send region and a receive region for one call. Returns the number of places in the
  // buffers; at least one.
  size_t places(const CallLayout& layout) const;
  CallBuffers At(const CallLayout& layout, size_t place) const;

  // One float, for the all-reduce that synchronizes the ranks.
  cu::Pointer barrier_value() const { return barrier_value_; }

  // Frees everything. Pass null for `comm` if the communicator was aborted. Buffers are then not
  // deregistered, because the communicator's registrations do not exist any more.
  void Release(nccl::Comm comm);

 private:
  struct Buffer {
    cu::Pointer start = 0;
    size_t bytes = 0;
    void* registration = nullptr;
    bool from_nccl = false;
    std::optional<PatternKey> holds;
  };

  std::optional<StepError> Grow(Buffer* buffer, size_t bytes, bool registered, nccl::Comm comm);
  void Free(Buffer* buffer, nccl::Comm comm);
  std::optional<StepError> DoesNotFit(const Step& step, size_t needed, size_t available) const;

  const CudaLibrary& cuda_;
  const NcclLibrary& nccl_;
  const int rank_;
  const int ranks_per_gpu_;
  Buffer send_;
  Buffer receive_;
  cu::Pointer barrier_value_ = 0;
  cu::Pointer pattern_ = 0;  // one pattern; allocated for the widest type
  std::optional<PatternKey> pattern_key_;
  size_t pattern_bytes_ = 0;
  size_t min_bytes_ = 0;
};

}  // namespace nccltune::bench
