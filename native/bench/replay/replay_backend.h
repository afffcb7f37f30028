// SPDX-License-Identifier: Apache-2.0
//
// A backend without GPUs: it draws timings from a recorded study.
#ifndef NCCLTUNE_BENCH_REPLAY_REPLAY_BACKEND_H_
#define NCCLTUNE_BENCH_REPLAY_REPLAY_BACKEND_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bench/backend.h"
#include "bench/replay/recording.h"
#include "bench/tuner_control.h"
#include "common/nccl_version.h"
#include "host/tuner_host.h"

namespace nccltune::bench {

struct ReplayOptions {
  std::string study;
  std::string tuner_path;                   // absolute path of our plugin
  std::optional<NcclVersion> nccl_version;  // nullopt: the recorded version
  std::optional<RecordedScale> scale;       // nullopt: the only recorded scale
  double pace = 0;  // duration of a step as a multiple of the recorded time; 0: no wait
};

// Runs in any number of processes up to the number of recorded ranks. Each process simulates some
// of the ranks. The tuner plugin is loaded and called as NCCL would do it. Each process draws the
// same timing for the plugin's decision, or for NCCL's default if the plugin decides nothing.
class ReplayBackend : public Backend {
 public:
  explicit ReplayBackend(ReplayOptions options) : options_(std::move(options)) {}

  std::optional<OpenError> Open(const World& world, ProcessExchange* exchange,
                                BackendInfo* info) override;
  StepResult Run(const Step& step) override;
  TableResult Table(const Step& step) override;
  void Close() override;
  void Abort() noexcept override;

 private:
  // The choice that NCCL with the plugin would run.
  struct Running {
    Choice choice;
    bool applied = true;
    std::optional<StepError> error;
  };

  std::optional<OpenError> OpenAlone(const World& world, BackendInfo* info);
  std::optional<OpenError> CheckWorld(const World& world) const;
  void Describe(const World& world, const host::InitReport& report, BackendInfo* info) const;
  Running Decide(const Step& step);
  TunerInputs SeenBy(const Step& step) const;
  // Returns an error if the processes would run different choices, because NCCL would then hang.
  std::optional<StepError> Disagreement(const Step& step, const Choice& choice);
  void Wait(double microseconds);

  const ReplayOptions options_;
  World world_;
  host::Platform platform_;
  ProcessExchange* exchange_ = nullptr;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<TunerControl> control_;
  std::unique_ptr<host::TunerHost> host_;

  std::mutex mutex_;
  std::condition_variable aborting_;
  bool aborted_ = false;
};

// The recorded ranks that one process simulates: [first, end).
struct RankRange {
  int first = 0;
  int end = 0;
};
RankRange RanksOf(const World& world, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_REPLAY_BACKEND_H_
