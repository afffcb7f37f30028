// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_NCCL_BACKEND_H_
#define NCCLTUNE_BENCH_NCCL_NCCL_BACKEND_H_

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

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_NCCL_BACKEND_H_
