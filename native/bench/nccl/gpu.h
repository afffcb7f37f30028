// SPDX-License-Identifier: Apache-2.0
// One GPU, which is one rank of NCCL: its context, stream, communicator and buffers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/device_buffers.h"
#include "bench/nccl/load.h"
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/pattern.h"
#include "bench/step.h"

namespace nccltune::bench {

// All functions except Abort are called from one thread, the GPU's own.
class Gpu {
 public:
  // `ordinal` is the driver's index of the device. Setting `stop` ends every wait with an error.
  Gpu(const CudaLibrary& cuda, const NcclLibrary& nccl, int ordinal, int rank, int ranks,
      int ranks_per_gpu, const std::atomic<bool>& stop)
      : cuda_(cuda),
        nccl_(nccl),
        ordinal_(ordinal),
        rank_(rank),
        ranks_(ranks),
        stop_(stop),
        buffers_(cuda, nccl, rank, ranks_per_gpu) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int ordinal() const { return ordinal_; }
  cu::Device device() const { return device_; }
  int rank() const { return rank_; }
  // The layout of the prepared step.
  const CallLayout& layout() const { return layout_; }
  // Returns whether the call has at most 1 MiB. Such a call is so short that microseconds matter
  // and an additional call costs little time.
  static bool IsSmall(const Step& step) { return step.bytes <= kMaxSmallBytes; }
  // Returns whether EnqueueBarrier uses the step's own collective.
  static bool IsOwnBarrier(const Step& step);

  // Creates context, stream, events and buffers.
  std::optional<StepError> Open();
  // Creates the communicator with the ranks of all processes.
  std::optional<StepError> Connect(const nccl::UniqueId& id);

  // Prepares the step: layout, buffers, reduction operator, data. If this rank cannot run the step,
  // returns the error here, before anything is launched.
  std::optional<StepError> Prepare(const Step& step);

  // Enqueues the prepared step's collective, or its group of calls, on the first places of the
  // buffers, where Check looks at the results.
  std::optional<StepError> FirstCall(const Step& step);
  // Enqueues the prepared step's collective, or its group of calls, on other places: `index` calls
  // or groups after the first place of the step.
  std::optional<StepError> Call(const Step& step, size_t index);
  // Enqueues a barrier: a call that completes on no rank before all ranks have reached it. The call
  // is the step's own collective if that collective has this property and is small. Otherwise the
  // call is an all-reduce of one number.
  std::optional<StepError> EnqueueBarrier(const Step& step, size_t index);
  // Enqueues a barrier that is an all-reduce of one number.
  std::optional<StepError> EnqueueBarrierAllReduce();
  // Polls until everything that is enqueued has completed.
  std::optional<StepError> Wait();

  std::optional<StepError> RecordStart();
  // Records the end event and polls until it has completed.
  std::optional<StepError> RecordEndAndWait();
  // Returns the time between the start and the end event in microseconds.
  std::optional<StepError> Elapsed(double* us) const;

  // Calls between BeginCapture and EndCapture are captured into a CUDA graph.
  std::optional<StepError> BeginCapture();
  std::optional<StepError> EndCapture(cu::GraphExec* graph);
  std::optional<StepError> Launch(cu::GraphExec graph);
  void DestroyGraph(cu::GraphExec graph) { cuda_->GraphExecDestroy(graph); }

  // A compute load in a stream of its own. Every wait of the Gpu also calls FeedLoad.
  std::optional<StepError> StartLoad();
  std::optional<StepError> FeedLoad();
  std::optional<StepError> StopLoad();
  uint64_t load_kernels() const { return load_ == nullptr ? 0 : load_->ended(); }

  // Prepares the check of a first call: overwrites the result regions and restores the input.
  std::optional<StepError> PrepareCheck(const Step& step);
  // Counts the wrong elements of the results of a first call.
  std::optional<StepError> Check(const Step& step, int64_t* wrong);

  // Destroys the communicators and frees everything. Used if there was no Abort.
  std::optional<StepError> Close();
  // Frees everything after Abort.
  void Release();

  // Aborts the communicators and the calls that run on them. Called at most once, from any thread.
  void Abort() noexcept;

 private:
  static constexpr size_t kMaxSmallBytes = size_t{1} << 20U;

  std::optional<StepError> PollFor(cu::Event event);
  std::optional<StepError> CallsFrom(const Step& step, size_t place);
  std::optional<StepError> CallAt(const Step& step, const CallBuffers& buffers);
  std::optional<StepError> CheckPlace(const Step& step, size_t place, int64_t* wrong);
  std::optional<StepError> GroupedCall(const Step& step, const CallBuffers& buffers);
  nccl::Result SendAndReceive(const Step& step, const CallBuffers& buffers);
  size_t FirstPlace(const Step& step) const;
  nccl::Comm comm() const { return comm_.load(); }
  std::optional<StepError> CudaCheck(cu::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }
  std::optional<StepError> NcclCheck(nccl::Result result, const char* what) const {
    return nccl_.Check(result, what, rank_, comm());
  }

  const CudaLibrary& cuda_;
  const NcclLibrary& nccl_;
  const int ordinal_;
  const int rank_;
  const int ranks_;
  const std::atomic<bool>& stop_;

  cu::Device device_ = 0;
  cu::Context context_ = nullptr;
  cu::Stream stream_ = nullptr;
  cu::Event start_ = nullptr;
  cu::Event end_ = nullptr;
  cu::Event done_ = nullptr;
  std::unique_ptr<ComputeLoad> load_;
  void* host_ = nullptr;  // pinned, kMaxCheckedBytes
  std::atomic<nccl::Comm> comm_ = nullptr;
  DeviceBuffers buffers_;
  Reference reference_;
  CallLayout layout_;  // of the prepared step; see layout()
};

}  // namespace nccltune::bench
