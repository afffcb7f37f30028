// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/step_run.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Failure = std::optional<StepError>;

// A load is asked whether it needs more once in so many calls: to ask takes a microsecond.
constexpr int kCallsPerFeed = 8;
// A load by itself is timed for so long, and traffic for so many exchanges.
constexpr double kAloneMicroseconds = 3000;
constexpr uint64_t kAloneExchanges = 6;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// A captured graph, dropped at the end: NCCL keeps resources for it, and calls without a graph are
// a little slower as long as there is one.
class CapturedGraph {
 public:
  explicit CapturedGraph(Gpu& gpu) : gpu_(gpu) {}
  ~CapturedGraph() {
    if (graph_ != nullptr) gpu_.Drop(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  // What `calls` enqueues.
  template <typename Calls>
  Failure Capture(const Calls& calls) {
    if (auto error = gpu_.BeginCapture()) return error;
    Failure error = calls();
    // The stream must leave the capture in any case.
    Failure ending = gpu_.EndCapture(&graph_);
    return error ? error : ending;
  }

  Failure Launch() { return gpu_.Launch(graph_); }

 private:
  Gpu& gpu_;
  cuda::GraphExec graph_ = nullptr;
};

class Runner {
 public:
  Runner(Gpu& gpu, const Step& step, Observer& observer, StepOutcome* outcome)
      : gpu_(gpu), step_(step), observer_(observer), outcome_(outcome) {
    outcome_->timing.rank = gpu.rank();
  }

  Failure Run() {
    if (step_.graph) return TimeGraph();
    Failure error = TimeCalls();
    if (error && step_.traffic_bytes > 0) {
      // What it has begun other ranks may not have, and nobody counts it any more.
      uint64_t begun = 0;
      gpu_.traffic().Pause(&begun);
      error->fatal = true;
    }
    return error;
  }

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

  Failure MeetAll() {
    if (auto error = gpu_.Meet(step_, next_++)) return error;
    return gpu_.Wait();
  }

  Failure TimeCalls() {
    if (auto error = step_.check ? LookAndCheck() : Look()) return error;
    const int met = Gpu::MeetsByItself(step_) ? 1 : 0;
    if (auto error = Calls(std::max(step_.warmup - 1 - met, 0))) return error;
    if (step_.load) {
      if (auto error = LoadAlone()) return error;
    }
    if (step_.traffic_bytes > 0) {
      if (auto error = TrafficAlone()) return error;
    }
    if (auto error = MeetAll()) return error;
    const int leading = Gpu::IsSmall(step_) ? 1 : 0;
    const Clock::time_point start = Clock::now();
    const uint64_t before = gpu_.load_kernels();
    const Traffic::Progress traffic = gpu_.traffic().progress();
    if (auto error = Calls(leading)) return error;
    if (auto error = gpu_.RecordStart()) return error;
    if (auto error = Calls(step_.iterations)) return error;
    if (auto error = gpu_.RecordEndAndWait()) return error;
    const double took = MicrosecondsSince(start);
    if (step_.load) {
      outcome_->timing.load_us = PerKernel(took, gpu_.load_kernels() - before);
      if (auto error = gpu_.StopLoad()) return error;
    }
    if (auto error = KeepTimes(took, step_.iterations + leading)) return error;
    return step_.traffic_bytes > 0 ? EndTraffic(traffic) : std::nullopt;
  }

  // It goes on behind.
  Failure LoadAlone() {
    if (auto error = gpu_.Wait()) return error;
    if (auto error = gpu_.StartLoad()) return error;
    // The first one has begun when it has ended.
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

  // It goes on behind. With the load where there is one: what traffic is beside it is not asked.
  Failure TrafficAlone() {
    if (auto error = gpu_.Wait()) return error;
    if (auto error = gpu_.StartTraffic(step_.traffic_bytes)) return error;
    // The first ones find the links idle.
    if (auto error = LetTrafficGo(2)) return error;
    const Traffic::Progress before = gpu_.traffic().progress();
    if (auto error = LetTrafficGo(before.exchanges + kAloneExchanges)) return error;
    outcome_->timing.traffic_alone_us = PerExchange(before);
    return std::nullopt;
  }

  Failure LetTrafficGo(uint64_t exchanges) {
    while (gpu_.traffic().progress().exchanges < exchanges) {
      if (auto error = gpu_.FeedLoad()) return error;
      if (auto error = gpu_.traffic().failure()) return error;
      std::this_thread::sleep_for(Traffic::kLook);
    }
    return std::nullopt;
  }

  // Not before all ranks' calls have ended: they were to run beside it.
  Failure EndTraffic(const Traffic::Progress& before) {
    outcome_->timing.traffic_us = PerExchange(before);
    if (auto error = gpu_.MeetBySum()) return error;
    if (auto error = gpu_.Wait()) return error;
    return gpu_.StopTraffic();
  }

  // Nothing: too short a time for one.
  std::optional<double> PerExchange(const Traffic::Progress& before) {
    const Traffic::Progress now = gpu_.traffic().progress();
    if (now.exchanges == before.exchanges) return std::nullopt;
    return (now.us - before.us) / static_cast<double>(now.exchanges - before.exchanges);
  }

  // Nothing: too short a time for one.
  static std::optional<double> PerKernel(double us, uint64_t kernels) {
    if (kernels == 0) return std::nullopt;
    return us / static_cast<double>(kernels);
  }

  Failure TimeGraph() {
    // Outside of the capture first: what a choice uses is connected at its first call.
    if (auto error = Calls(std::max(step_.warmup, 1))) return error;
    if (auto error = gpu_.Wait()) return error;
    CapturedGraph graph(gpu_);
    {
      const Observer::Looking looking(observer_, gpu_.rank());
      if (auto error = graph.Capture([this] { return Calls(step_.iterations); })) return error;
      outcome_->seen = observer_.Seen(step_.collective, gpu_.layout().bytes, gpu_.rank());
    }
    if (auto error = graph.Launch()) return error;
    if (auto error = MeetAll()) return error;
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

  Failure Look() { return RunOnce(gpu_, step_, observer_, &outcome_->seen); }

  Failure LookAndCheck() {
    if (auto error = gpu_.PrepareCheck(step_)) return error;
    if (auto error = Look()) return error;
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
                                 Observation* seen) {
  const Observer::Looking looking(observer, gpu.rank());
  if (auto error = gpu.FirstCall(step)) return error;
  if (auto error = gpu.Wait()) return error;
  *seen = observer.Seen(step.collective, gpu.layout().bytes, gpu.rank());
  return std::nullopt;
}

std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome) {
  return Runner(gpu, step, observer, outcome).Run();
}

}  // namespace nccltune::bench
