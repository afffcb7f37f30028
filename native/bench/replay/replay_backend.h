// SPDX-License-Identifier: Apache-2.0
//
// Plays GPUs and NCCL from a recorded study.
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
  std::string tuner_path;                   // our plugin, absolute
  std::optional<NcclVersion> nccl_version;  // none: the recorded one
  std::optional<Scale> scale;               // none: the only one that was recorded
  double pace = 0;  // how long a step takes, as a multiple of what was recorded
};

// Any number of processes, up to the recorded ranks; each plays its share of them. The tuner plugin
// is loaded and asked as NCCL does; what it decides, or NCCL's default where it decides nothing, is
// what a timing is drawn for, the same in all processes.
class ReplayBackend : public Backend {
 public:
  explicit ReplayBackend(ReplayOptions options) : options_(std::move(options)) {}

  std::optional<OpenError> Open(const World& world, Exchange* exchange, BackendInfo* info) override;
  StepResult Run(const Step& step) override;
  TableResult Table(const Step& step) override;
  void Close() override;
  void Abort() noexcept override;

 private:
  // What runs: a recorded choice, as NCCL with the plugin comes to it.
  struct Running {
    Choice choice;
    bool applied = true;
    std::optional<StepError> error;
  };

  std::optional<OpenError> OpenAlone(const World& world, BackendInfo* info);
  std::optional<OpenError> CheckWorld(const World& world) const;
  void Describe(const World& world, const host::InitReport& report, BackendInfo* info) const;
  Running Decide(const Step& step);
  // Whether all processes are about to run the same; if not, NCCL would get stuck.
  std::optional<StepError> Disagreement(const Step& step, const Choice& choice);
  void Wait(double microseconds);

  const ReplayOptions options_;
  World world_;
  host::Platform platform_;
  Exchange* exchange_ = nullptr;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<TunerControl> control_;
  std::unique_ptr<host::TunerHost> host_;

  std::mutex mutex_;
  std::condition_variable aborting_;
  bool aborted_ = false;
};

// The recorded ranks that a process plays: from first up to, not including, end.
struct Share {
  int first = 0;
  int end = 0;
};
Share ShareOf(const World& world, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_REPLAY_REPLAY_BACKEND_H_
