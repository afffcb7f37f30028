// SPDX-License-Identifier: Apache-2.0
//
// One GPU, which is one rank: its context, stream, communicator and buffers.
#ifndef NCCLTUNE_BENCH_NCCL_GPU_H_
#define NCCLTUNE_BENCH_NCCL_GPU_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bench/nccl/call_layout.h"
#include "bench/nccl/cuda_driver.h"
#include "bench/nccl/device_buffers.h"
#include "bench/nccl/load.h"
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/result_check.h"
#include "bench/nccl/traffic.h"
#include "bench/step.h"

namespace nccltune::bench {

// All functions but Stop and Abort are called from one thread, the GPU's own.
class Gpu {
 public:
  // `ordinal` among the devices that the driver shows. `stop` ends every wait.
  Gpu(const CudaDriver& cuda, const NcclLibrary& nccl, int ordinal, int rank, int ranks,
      const std::atomic<bool>& stop)
      : cuda_(cuda),
        nccl_(nccl),
        ordinal_(ordinal),
        rank_(rank),
        ranks_(ranks),
        stop_(stop),
        buffers_(cuda, nccl, rank),
        traffic_(cuda, nccl, rank, ranks, stop) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int ordinal() const { return ordinal_; }
  int rank() const { return rank_; }
  // Of the prepared step.
  const CallLayout& layout() const { return layout_; }
  // Whether a call takes so little time that microseconds count, and one more costs nothing.
  static bool IsSmall(const Step& step) { return step.bytes <= kMostSmallBytes; }
  // Whether Meet is a call of the step's own collective.
  static bool MeetsByItself(const Step& step);

  // Context, stream and events.
  std::optional<StepError> Open();
  // With the ranks of all processes.
  std::optional<StepError> Connect(const nccl::UniqueId& id);

  // Whatever keeps this rank from running the step shows here, before anything is launched.
  std::optional<StepError> Prepare(const Step& step);

  // Enqueues the prepared step's collective on place 0, where its result can be checked.
  std::optional<StepError> FirstCall(const Step& step);
  // Enqueues it on the place that is `index` after where the step begins.
  std::optional<StepError> Call(const Step& step, size_t index);
  // Enqueues a call that no rank ends before all ranks have come to it: the step's own where it is
  // of that kind and small, else an all-reduce of one number.
  std::optional<StepError> Meet(const Step& step, size_t index);
  // Enqueues an all-reduce of one number.
  std::optional<StepError> MeetBySum();
  // Polls until everything enqueued is done.
  std::optional<StepError> Wait();

  std::optional<StepError> RecordStart();
  // Polls until everything up to here is done.
  std::optional<StepError> RecordEndAndWait();
  // Microseconds between the two.
  std::optional<StepError> Elapsed(double* us) const;

  // Between the two, calls are put into a graph.
  std::optional<StepError> BeginCapture();
  std::optional<StepError> EndCapture(cuda::GraphExec* graph);
  std::optional<StepError> Launch(cuda::GraphExec graph);
  void Drop(cuda::GraphExec graph) { cuda_->cuGraphExecDestroy(graph); }

  // Something to compute beside what is enqueued, fed whenever something is waited for.
  std::optional<StepError> StartLoad();
  std::optional<StepError> FeedLoad();
  std::optional<StepError> StopLoad();
  uint64_t load_kernels() const { return load_ == nullptr ? 0 : load_->ended(); }

  // Messages beside it, once they are connected on all ranks.
  Traffic& traffic() { return traffic_; }
  std::optional<StepError> StartTraffic(size_t bytes) { return traffic_.Start(context_, bytes); }
  // When the step's calls have ended on all ranks: ends what all have begun.
  std::optional<StepError> StopTraffic();

  // For the check of a first call: spoils the result region and makes the input as it should be.
  std::optional<StepError> PrepareCheck(const Step& step);
  // Counts the wrong elements there.
  std::optional<StepError> Check(const Step& step, int64_t* wrong);

  // The good end.
  std::optional<StepError> Close();
  // After Abort.
  void Release();

  // From any thread: ends what the communicator has running and the communicator with it. Once.
  void Abort() noexcept;

 private:
  static constexpr size_t kMostSmallBytes = size_t{1} << 20U;

  std::optional<StepError> PollFor(cuda::Event event);
  std::optional<StepError> CallAt(const Step& step, const CallBuffers& buffers);
  std::optional<StepError> MostOf(uint64_t mine, uint64_t* most);
  std::optional<StepError> GroupedCall(const Step& step, const CallBuffers& buffers);
  nccl::Result SendAndReceive(const Step& step, const CallBuffers& buffers);
  std::optional<StepError> MakePremul(Dtype dtype);
  nccl::RedOp RedOpOf(const Step& step) const;
  size_t FirstPlace(const Step& step) const;
  nccl::Comm comm() const { return comm_.load(); }
  std::optional<StepError> CudaCheck(cuda::Result result, const char* what) const {
    return cuda_.Check(result, what, rank_);
  }
  std::optional<StepError> NcclCheck(nccl::Result result, const char* what) const {
    return nccl_.Check(result, what, rank_, comm());
  }

  const CudaDriver& cuda_;
  const NcclLibrary& nccl_;
  const int ordinal_;
  const int rank_;
  const int ranks_;
  const std::atomic<bool>& stop_;

  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  cuda::Event start_ = nullptr;
  cuda::Event end_ = nullptr;
  cuda::Event done_ = nullptr;
  std::unique_ptr<ComputeLoad> load_;
  void* host_ = nullptr;  // pinned, kMostCheckedBytes
  std::atomic<nccl::Comm> comm_ = nullptr;
  DeviceBuffers buffers_;
  Traffic traffic_;
  Reference reference_;
  CallLayout layout_;  // of the prepared step
  struct Premul {
    Dtype dtype;
    nccl::RedOp op;
  };
  std::optional<Premul> premul_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_GPU_H_
