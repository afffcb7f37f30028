// SPDX-License-Identifier: Apache-2.0
//
// A GPU's send and receive buffers: allocated for the largest step so far, never less than twice
// the L2 cache, and used in turn from many offsets, so that a call does not find in the cache what
// the one before it left there.
#ifndef NCCLTUNE_BENCH_NCCL_DEVICE_BUFFERS_H_
#define NCCLTUNE_BENCH_NCCL_DEVICE_BUFFERS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/cuda_driver.h"
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/pattern.h"

namespace nccltune::bench {

// Where one call reads and writes.
struct CallBuffers {
  cuda::DevicePointer send = 0;
  cuda::DevicePointer receive = 0;
};

// Used with the GPU's context current.
class DeviceBuffers {
 public:
  DeviceBuffers(const CudaDriver& cuda, const NcclLibrary& nccl, int rank)
      : cuda_(cuda), nccl_(nccl), rank_(rank) {}
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // What every step needs. Before all others.
  std::optional<StepError> Open(cuda::Device device);

  // Makes room for the step, and leaves everything as it is if there is some. kMemory, not fatal,
  // says what would fit; the buffers are empty then. Nothing may be running that uses them.
  // `registered`: from ncclMemAlloc and registered with the communicator.
  std::optional<StepError> Reserve(const Step& step, const CallLayout& layout, nccl::Comm comm);

  // Fills what a step reads with the rank's pattern, unless it holds that already. Done when the
  // stream is.
  std::optional<StepError> FillFor(const Step& step, const PatternKey& key, const Bytes& pattern,
                                   cuda::Stream stream);

  // Repeats the pattern given last over `bytes` at `to`.
  std::optional<StepError> Repeat(cuda::DevicePointer to, size_t bytes, cuda::Stream stream) const;

  // Pairs of regions that a step's calls can use in turn, one at least.
  size_t places(const Step& step, const CallLayout& layout) const;
  CallBuffers At(const Step& step, const CallLayout& layout, size_t place) const;

  // A float of its own for the call that brings the ranks together.
  cuda::DevicePointer meeting_point() const { return meeting_point_; }

  // Gives everything back. `comm` null: it has been aborted, and its registrations with it.
  void Release(nccl::Comm comm);

 private:
  struct Buffer {
    cuda::DevicePointer start = 0;
    size_t bytes = 0;
    void* registration = nullptr;
    bool from_nccl = false;
    std::optional<PatternKey> holds;
  };

  std::optional<StepError> Grow(Buffer* buffer, size_t bytes, bool registered, nccl::Comm comm);
  void Free(Buffer* buffer, nccl::Comm comm);
  std::optional<StepError> DoesNotFit(const Step& step, size_t needed, size_t available) const;
  std::optional<StepError> Fill(Buffer* buffer, const PatternKey& key, cuda::Stream stream) const;

  const CudaDriver& cuda_;
  const NcclLibrary& nccl_;
  const int rank_;
  Buffer send_;
  Buffer receive_;
  cuda::DevicePointer meeting_point_ = 0;
  cuda::DevicePointer pattern_ = 0;  // room for one pattern of the widest type
  std::optional<PatternKey> pattern_key_;
  size_t pattern_bytes_ = 0;
  size_t least_bytes_ = 0;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_DEVICE_BUFFERS_H_
