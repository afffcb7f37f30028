// SPDX-License-Identifier: Apache-2.0
// Runs steps with the NCCL backend. nccl_open.cc opens the backend.
#include "bench/nccl/nccl_backend.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace nccltune::bench {
namespace {

using Failure = std::optional<StepError>;

constexpr std::chrono::seconds kCloseLimit{20};
constexpr std::chrono::milliseconds kIdleLimit{300};
constexpr std::chrono::seconds kReleaseLimit{1};

Failure Unsupported(std::string text) {
  return StepError{ErrorKind::kUnsupported, std::move(text), -1, false};
}

// Returns an error if the step has registered buffers and NCCL ignores that.
Failure IgnoredRegistration(const Step& step, const std::optional<TunerInputs>& seen) {
  if (!step.registered || !seen || seen->registered.value_or(true)) return std::nullopt;
  return Unsupported(
      "NCCL does not use the registration of the buffers (regBuff is 0); is NCCL_LOCAL_REGISTER=0 "
      "set?");
}

// Returns a higher number for an error that explains more. An error of kind kDied explains nothing,
// because that rank was only stopped.
int Severity(const StepError& error) {
  if (error.kind == ErrorKind::kDied) return 0;
  return error.fatal ? 2 : 1;
}

// Returns the first error among those with the highest severity.
Failure Worst(const std::vector<Failure>& failures) {
  Failure worst;
  for (const Failure& failure : failures) {
    if (failure && (!worst || Severity(*failure) > Severity(*worst))) worst = failure;
  }
  return worst;
}

}  // namespace

std::unique_ptr<Backend> MakeNcclBackend(const NcclOptions& options) {
  return std::make_unique<NcclBackend>(options);
}

NcclBackend::Limit::Limit(std::chrono::duration<double> limit)
    : time(limit),
      deadline(Team::Clock::now() + std::chrono::duration_cast<Team::Clock::duration>(time)) {}

NcclBackend::NcclBackend(NcclOptions options) : options_(std::move(options)) {}

NcclBackend::~NcclBackend() {
  if (!team_) return;
  if (!closed_) AbortAll();
  // After an abort, free the resources of the GPUs. If a GPU's thread is stuck, leave the resources
  // allocated, because the thread may use them.
  if (!closed_ && team_->WaitIdle(kIdleLimit)) {
    const auto task = [body = body_](size_t member) { body->gpus[member].Release(); };
    team_->Run(task, Team::Clock::now() + kReleaseLimit);
  }
}

Failure NcclBackend::OnAll(const GpuTask& task, const Limit& limit, const std::string& what) {
  if (body_->stop) return RunEndedError();
  // The task owns everything that a stuck thread may still access.
  struct Work {
    GpuTask task;
    std::vector<Failure> failures;
  };
  const auto work = std::make_shared<Work>();
  work->task = task;
  work->failures.resize(body_->gpus.size());
  Team* const team = team_.get();
  const auto run = [work, body = body_, team](size_t member) {
    Failure& failure = work->failures[member];
    failure = work->task(body->gpus[member], member);
    // This rank has failed, but the other ranks still wait for this rank. So end the task soon.
    if (failure && failure->fatal && !body->stop) team->EndSoon();
  };
  if (team_->Run(run, limit.deadline)) {
    Failure worst = Worst(work->failures);
    return worst && body_->stop ? RunEndedError() : worst;
  }
  if (body_->stop) return RunEndedError();
  const int stuck = body_->gpus[team_->FirstBusy()].rank();
  AbortAll();
  // If a rank failed, return its error, because that error explains why the other ranks are stuck.
  // The errors can be read only if all threads have returned.
  const bool settled = team_->WaitIdle(kIdleLimit);
  Failure worst = settled ? Worst(work->failures) : std::nullopt;
  if (worst && worst->kind != ErrorKind::kDied) return worst;
  return StepError{ErrorKind::kTimeout,
                   what + " is stuck: rank " + std::to_string(stuck) + " was not done after " +
                       InSeconds(limit.time) + "; the communicator was aborted",
                   stuck, true};
}

Failure NcclBackend::Unsupported(const Step& step) const {
  using bench::Unsupported;
  const NcclVersion& version = body_->nccl->version();
  const bool is_f8 = step.dtype == Dtype::kF8e4m3 || step.dtype == Dtype::kF8e5m2;
  if (is_f8 && version < NcclVersion{2, 24, 0}) {
    return Unsupported("NCCL " + ToString(version) +
                       " has no 8-bit floats; they need 2.24 or later");
  }
  if (is_f8 && Reduces(step.collective) && compute_capability_ < 90) {
    return Unsupported(
        "NCCL reduces 8-bit floats only on GPUs of compute capability 9.0 or higher");
  }
  if (step.choice.kind != Choice::Kind::kForced) return std::nullopt;
  if (!IsTuned(step.collective)) {
    return Unsupported("NCCL asks no tuner about this collective, so no choice can be forced");
  }
  if (step.choice.chunk_bytes > 0 && interface_version_ < 6) {
    return Unsupported("NCCL " + ToString(version) +
                       " asks no tuner for a chunk size; that needs 2.30 or later");
  }
  return std::nullopt;
}

Failure NcclBackend::PrepareAll(const Step& step, const Limit& limit) {
  CallLayout layout;
  // These two checks need no exchange, because their results are the same in all processes.
  if (Failure failure = Unsupported(step)) return failure;
  if (Failure failure = LayOut(step, ranks_, &layout)) return failure;
  const Needs needs = {PatternKey::For(step.collective, step.dtype, step.redop, ranks_),
                       step.registered, SpanOf(step, layout.send_bytes),
                       SpanOf(step, layout.receive_bytes)};
  const auto task = [step](Gpu& gpu, size_t) { return gpu.Prepare(step); };
  const Failure mine = OnAll(task, limit, "preparing " + InWords(step));
  if (body_->stop && !mine) return RunEndedError();
  if (Failure failure = AgreeOn(needs, mine)) return failure;
  return Apply(step);
}

bool NcclBackend::Needs::Cover(const Needs& other) const {
  return key == other.key && registered == other.registered && send_bytes >= other.send_bytes &&
         receive_bytes >= other.receive_bytes;
}

// Exchanges errors, so that all processes return an error if one of them failed. If every process
// already has the resources from an earlier step, skips the exchange, because an exchange takes
// longer than a small step.
Failure NcclBackend::AgreeOn(const Needs& needs, const Failure& mine) {
  if (agreed_ && agreed_->Cover(needs)) {
    if (!mine) return std::nullopt;
    StepError error = *mine;
    error.fatal = true;  // the other processes do not know the error and launch the step
    return error;
  }
  agreed_.reset();
  if (Failure failure = ShareFirstError(exchange_, mine)) return failure;
  agreed_ = needs;
  return std::nullopt;
}

Failure NcclBackend::Apply(const Step& step) {
  // The barrier is an all-reduce. An all-reduce choice that an earlier step has set must not affect
  // the barrier, so reset the choice.
  if (!Gpu::IsOwnBarrier(step) && step.collective != Collective::kAllReduce) {
    body_->control->Apply(Collective::kAllReduce, Choice());
  }
  if (body_->control->Apply(step.collective, step.choice)) return std::nullopt;
  return bench::Unsupported("the tuner plugin rejects the choice " + InWords(step.choice));
}

StepResult NcclBackend::Run(const Step& step) {
  StepResult result;
  const Limit limit{std::chrono::duration<double>(step.timeout_s)};
  result.error = PrepareAll(step, limit);
  if (result.error) return result;
  const auto outcomes = std::make_shared<std::vector<StepOutcome>>(body_->gpus.size());
  const auto task = [step, outcomes, body = body_](Gpu& gpu, size_t member) {
    return RunStep(gpu, step, *body->observer, &(*outcomes)[member]);
  };
  result.error = OnAll(task, limit, InWords(step));
  if (result.error) return result;
  AppliedChoice verdict = Judge(step, outcomes->front().observation, body_->nccl->version());
  result.ran = verdict.ran;
  result.seen = SeenBy(outcomes->front().observation);
  result.applied = verdict.applied;
  result.error = IgnoredRegistration(step, result.seen);
  if (result.error) return result;
  for (const StepOutcome& outcome : *outcomes) {
    const int64_t wrong = outcome.timing.wrong.value_or(0);
    if (wrong > 0 && !result.error) {
      result.error = StepError{ErrorKind::kWrong,
                               InWords(step) + " is wrong: " + std::to_string(wrong) +
                                   " elements on rank " + std::to_string(outcome.timing.rank),
                               outcome.timing.rank, false};
    }
    result.timings.push_back(outcome.timing);
  }
  return result;
}

TableResult NcclBackend::Table(const Step& asked) {
  TableResult result;
  Step step = asked;
  step.choice = Choice();
  step.graph = false;
  step.iterations = 1;
  if (!IsTuned(step.collective)) {
    result.error = bench::Unsupported("NCCL predicts nothing for this collective");
    return result;
  }
  const Limit limit{std::chrono::duration<double>(step.timeout_s)};
  result.error = PrepareAll(step, limit);
  if (result.error) return result;
  const auto observations = std::make_shared<std::vector<Observation>>(body_->gpus.size());
  const auto task = [step, observations, body = body_](Gpu& gpu, size_t member) {
    return RunOnce(gpu, step, *body->observer, &(*observations)[member]);
  };
  result.error = OnAll(task, limit, InWords(step));
  if (result.error) return result;
  const std::optional<nccltune_tuner_table>& table = observations->front().table;
  if (!table) {
    result.error = bench::Unsupported("NCCL " + ToString(body_->nccl->version()) +
                                      " passes no predictions to a tuner");
    return result;
  }
  result.row = RowOf(*table, body_->nccl->version());
  result.row.seen = SeenBy(observations->front());
  result.error = IgnoredRegistration(step, result.row.seen);
  return result;
}

void NcclBackend::Close() {
  if (!team_ || closed_ || body_->stop) return;
  const Failure failure = OnAll([](Gpu& gpu, size_t) { return gpu.Close(); }, Limit(kCloseLimit),
                                "ending the communicator");
  closed_ = !failure;
  if (failure) std::fprintf(stderr, "nccltune-bench: %s\n", failure->text.c_str());
}

void NcclBackend::AbortAll() noexcept {
  body_->stop = true;
  const std::lock_guard<std::mutex> lock(abort_mutex_);
  if (team_) {
    team_->EndSoon();
    // Give polling threads time to see `stop` and return, because no communicator should be aborted
    // while another thread is inside an NCCL call.
    team_->WaitIdle(kIdleLimit);
  }
  for (Gpu& gpu : body_->gpus) gpu.Abort();
}

void NcclBackend::Abort() noexcept { AbortAll(); }

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
      outcome_->observation =
          observer_.Collect(step_.collective, gpu_.layout().bytes, gpu_.rank(), gpu_.device());
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
  *observation = observer.Collect(step.collective, gpu.layout().bytes, gpu.rank(), gpu.device());
  return std::nullopt;
}

std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome) {
  return Runner(gpu, step, observer, outcome).Run();
}

}  // namespace nccltune::bench
