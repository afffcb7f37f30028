// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/step_run.h"

#include <algorithm>
#include <chrono>

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Failure = std::optional<StepError>;

// Feed the load once in this many calls, because each feed takes a microsecond.
constexpr int kCallsPerFeed = 8;
// Time for which the load runs alone.
constexpr double kAloneMicroseconds = 3000;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A captured graph, destroyed at the end of its scope. NCCL keeps resources for a graph, and calls
// without a graph are slightly slower while one exists.
class CapturedGraph {
 public:
  explicit CapturedGraph(Gpu& gpu) : gpu_(gpu) {}
  ~CapturedGraph() {
    if (graph_ != nullptr) gpu_.DestroyGraph(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // Captures the work that `calls` enqueues.
  template <typename Calls>
  Failure Capture(const Calls& calls) {
    if (auto error = gpu_.BeginCapture()) return error;
    Failure error = calls();
    // End the capture even after an error, so that the stream is usable again.
    Failure ending = gpu_.EndCapture(&graph_);
    return error ? error : ending;
  }

  Failure Launch() { return gpu_.Launch(graph_); }

 private:
  Gpu& gpu_;
  cu::GraphExec graph_ = nullptr;
};

class Runner {
 public:
  Runner(Gpu& gpu, const Step& step, Observer& observer, StepOutcome* outcome)
      : gpu_(gpu), step_(step), observer_(observer), outcome_(outcome) {
    outcome_->timing.rank = gpu.rank();
  }

  Failure Run() { return step_.graph ? TimeGraph() : TimeCalls(); }

 private:
  Failure Calls(int count) {
    for (int i = 0; i < count; ++i) {
      if (auto error = gpu_.Call(step_, next_++)) return error;
      if (step_.load && i % kCallsPerFeed == 0) {
        if (auto error = gpu_.FeedLoad()) return error;
      }
    }
    return std::nullopt;
  }

  Failure Barrier() {
    if (auto error = gpu_.EnqueueBarrier(step_, next_++)) return error;
    return gpu_.Wait();
  }

  Failure TimeCalls() {
    if (auto error = step_.check ? ObservedCallWithCheck() : ObservedCall()) return error;
    const int barrier_calls = Gpu::IsOwnBarrier(step_) ? 1 : 0;
    if (auto error = Calls(std::max(step_.warmup - 1 - barrier_calls, 0))) return error;
    if (step_.load) {
      if (auto error = LoadAlone()) return error;
    }
    if (auto error = Barrier()) return error;
    const int leading = Gpu::IsSmall(step_) ? 1 : 0;
    const Clock::time_point start = Clock::now();
    const uint64_t before = gpu_.load_kernels();
    if (auto error = Calls(leading)) return error;
    if (auto error = gpu_.RecordStart()) return error;
    if (auto error = Calls(step_.iterations)) return error;
    if (auto error = gpu_.RecordEndAndWait()) return error;
    const double took = MicrosecondsSince(start);
    if (step_.load) {
      outcome_->timing.load_us = PerKernel(took, gpu_.load_kernels() - before);
      if (auto error = gpu_.StopLoad()) return error;
    }
    return KeepTimes(took, step_.iterations + leading);
  }

  // Times the load without the calls and leaves it running.
  Failure LoadAlone() {
    if (auto error = gpu_.Wait()) return error;
    if (auto error = gpu_.StartLoad()) return error;
    // Wait until one kernel has ended, so that the load certainly runs.
    while (gpu_.load_kernels() == 0) {
      if (auto error = gpu_.FeedLoad()) return error;
    }
    const Clock::time_point start = Clock::now();
    const uint64_t before = gpu_.load_kernels();
    double took = 0;
    while (took < kAloneMicroseconds || gpu_.load_kernels() == before) {
      if (auto error = gpu_.FeedLoad()) return error;
      took = MicrosecondsSince(start);
    }
    outcome_->timing.load_alone_us = PerKernel(took, gpu_.load_kernels() - before);
    return std::nullopt;
  }

  // Returns the time of one kernel in us; nullopt if no kernel ended.
  static std::optional<double> PerKernel(double us, uint64_t kernels) {
    if (kernels == 0) return std::nullopt;
    return us / static_cast<double>(kernels);
  }

  Failure TimeGraph() {
    // Run untimed calls outside of the capture first, because the first call of a choice creates
    // its connections.
    if (auto error = Calls(std::max(step_.warmup, 1))) return error;
    if (auto error = gpu_.Wait()) return error;
    CapturedGraph graph(gpu_);
    {
      const Observer::ObservationScope scope(observer_, gpu_.rank());
      if (auto error = graph.Capture([this] { return Calls(step_.iterations); })) return error;
      outcome_->observation = observer_.Collect(step_.collective, gpu_.layout().bytes, gpu_.rank());
    }
    if (auto error = graph.Launch()) return error;
    if (auto error = Barrier()) return error;
    const Clock::time_point start = Clock::now();
    if (auto error = gpu_.RecordStart()) return error;
    if (auto error = graph.Launch()) return error;
    if (auto error = gpu_.RecordEndAndWait()) return error;
    if (auto error = KeepTimes(MicrosecondsSince(start), step_.iterations)) return error;
    return step_.check ? CheckGraph() : std::nullopt;
  }

  Failure KeepTimes(double host_us, int host_calls) {
    double us = 0;
    if (auto error = gpu_.Elapsed(&us)) return error;
    outcome_->timing.event_us = us / step_.iterations;
    outcome_->timing.host_us = host_us / host_calls;
    return std::nullopt;
  }

  Failure ObservedCall() { return RunOnce(gpu_, step_, observer_, &outcome_->observation); }

  Failure ObservedCallWithCheck() {
    if (auto error = gpu_.PrepareCheck(step_)) return error;
    if (auto error = ObservedCall()) return error;
    return CountWrong();
  }

  Failure CheckGraph() {
    if (auto error = gpu_.PrepareCheck(step_)) return error;
    CapturedGraph graph(gpu_);
    if (auto error = graph.Capture([this] { return gpu_.FirstCall(step_); })) return error;
    if (auto error = graph.Launch()) return error;
    return CountWrong();
  }

  Failure CountWrong() {
    int64_t wrong = 0;
    if (auto error = gpu_.Check(step_, &wrong)) return error;
    outcome_->timing.wrong = wrong;
    return std::nullopt;
  }

  Gpu& gpu_;
  const Step& step_;
  Observer& observer_;
  StepOutcome* const outcome_;
  size_t next_ = 0;
};

}  // namespace

std::optional<StepError> RunOnce(Gpu& gpu, const Step& step, Observer& observer,
                                 Observation* observation) {
  const Observer::ObservationScope scope(observer, gpu.rank());
  if (auto error = gpu.FirstCall(step)) return error;
  if (auto error = gpu.Wait()) return error;
  *observation = observer.Collect(step.collective, gpu.layout().bytes, gpu.rank());
  return std::nullopt;
}

std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome) {
  return Runner(gpu, step, observer, outcome).Run();
}

}  // namespace nccltune::bench
