// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/nccl/agreement.h"
#include "bench/nccl/gpu.h"
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/observation.h"
#include "bench/nccl/team.h"
#include "bench/step.h"
#include "bench/tuner_control.h"

namespace nccltune::bench {

// Runs steps with NCCL on the GPUs of this process, one thread for each GPU.
class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(NcclOptions options);
  ~NcclBackend() override;

  std::optional<OpenError> Open(const World& world, ProcessExchange* exchange,
                                BackendInfo* info) override;
  StepResult Run(const Step& step) override;
  TableResult Table(const Step& step) override;
  void Close() override;
  void Abort() noexcept override;

 private:
  using Failure = std::optional<StepError>;
  using GpuTask = std::function<Failure(Gpu& gpu, size_t member)>;

  // A time limit that starts when the object is created.
  struct Limit {
    explicit Limit(std::chrono::duration<double> limit);
    std::chrono::duration<double> time;
    Team::Clock::time_point deadline;
  };

  // The resources that every process needs before a step can be launched.
  struct Needs {
    PatternKey key;
    bool registered = false;
    size_t send_bytes = 0;
    size_t receive_bytes = 0;

    bool Cover(const Needs& other) const;
  };

  // State that the tasks use. The tasks share ownership of this state, because a thread that is
  // stuck in NCCL outlives the backend.
  struct Body {
    std::atomic<bool> stop = false;
    std::unique_ptr<CudaLibrary> cuda;
    std::unique_ptr<NcclLibrary> nccl;
    std::unique_ptr<TunerControl> control;
    std::optional<Observer> observer;
    std::deque<Gpu> gpus;  // in rank order
  };

  std::optional<OpenError> OpenLibraries(const World& world);
  Introduction IntroductionOf(std::optional<OpenError> error) const;
  std::optional<OpenError> Connect(const World& world);
  std::optional<OpenError> ProveTuner();
  void Describe(const World& world, const std::vector<Introduction>& all, BackendInfo* info) const;

  // Runs the task on all GPUs. Returns the first fatal error in rank order. If there is none,
  // returns the first other error; kDied comes last. Returns RunEndedError() after an abort. On a
  // timeout, aborts the communicator and returns the error of a rank that failed. If no rank
  // failed, returns kTimeout with a text that contains `what`.
  Failure OnAll(const GpuTask& task, const Limit& limit, const std::string& what);
  Failure Unsupported(const Step& step) const;
  Failure PrepareAll(const Step& step, const Limit& limit);
  Failure AgreeOn(const Needs& needs, const Failure& mine);
  Failure Apply(const Step& step);
  void AbortAll() noexcept;

  const NcclOptions options_;
  const std::shared_ptr<Body> body_ = std::make_shared<Body>();
  ProcessExchange* exchange_ = nullptr;
  int ranks_ = 0;
  int interface_version_ = 0;
  int nodes_ = 0;
  int compute_capability_ = 0;
  std::optional<Needs> agreed_;  // resources of the last step that all processes could prepare
  std::unique_ptr<Team> team_;
  std::mutex abort_mutex_;
  bool closed_ = false;
};

// Runs one step on one GPU, from the untimed calls to the check of the result.

struct StepOutcome {
  RankTiming timing;
  Observation observation;
};

// Runs a prepared step whose choice is set in all processes:
//
// 1. Run one untimed call that is observed. This call also creates the connections of the choice.
//    If the step has a check, the result of this call is compared on the host. Then run the other
//    warm-up calls.
// 2. Run a barrier and wait for its end. So all ranks start the calls within a few microseconds.
// 3. Read the host clock. For small sizes, run one leading call, which absorbs the remaining
//    difference between the start times. Record the start event, run the iterations, record the end
//    event, and poll for the end.
//
// `event_us` is the time between the events divided by the iterations. `host_us` is the host time
// divided by the number of all calls in item 3. As in nccl-tests, `host_us` includes the first
// launch and the polling.
//
// With a load, the load kernels run from before item 2 to the end of item 3. The time of one load
// kernel without the calls is measured first.
//
// With a graph, the iterations are captured once and launched once untimed. After the barrier the
// graph is launched once between the events, without a leading call. The check uses a separate
// graph at the end.
std::optional<StepError> RunStep(Gpu& gpu, const Step& step, Observer& observer,
                                 StepOutcome* outcome);

// Runs one untimed call and sets *observation to the records of that call.
std::optional<StepError> RunOnce(Gpu& gpu, const Step& step, Observer& observer,
                                 Observation* observation);

}  // namespace nccltune::bench
