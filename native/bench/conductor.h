// SPDX-License-Identifier: Apache-2.0
//
// Process 0's lead of a run: takes requests, has all players run the steps, answers.
#ifndef NCCLTUNE_BENCH_CONDUCTOR_H_
#define NCCLTUNE_BENCH_CONDUCTOR_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/ensemble.h"
#include "bench/point.h"
#include "bench/request.h"
#include "bench/schedule.h"

namespace nccltune::bench {

class Conductor {
 public:
  struct Settings {
    std::string version;
    std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
    // What a step may take beyond its own timeout. A backend ends a stuck collective by itself;
    // this is for one that does not even do that.
    std::chrono::milliseconds beyond_timeout{std::chrono::seconds(10)};
  };

  // `ensemble` must outlive this object.
  Conductor(Ensemble* ensemble, Settings settings);

  // The whole run; the process's exit status.
  int Run();

 private:
  bool Start();
  bool TakeInfos(bool all);
  void Converse();
  int Finish();

  bool NextRequest(Request* request);
  void Measure(const Request& request);
  bool MeasureStep(const Request& request, Iterations* iterations, Step step);
  void Table(const Request& request);
  TableResult TableOf(const Step& step);
  std::optional<StepError> Unsupported(const Step& step) const;

  // Runs the step everywhere. False: the run ends and there is no result.
  bool RunStep(Step step, Point* point);
  // What all processes made of it; nothing when the run ends first. Who did not answer in time has
  // a timeout for an answer, who was not waited for has an empty one.
  template <typename Result>
  std::optional<std::vector<Result>> AskAll(MessageType question, Step step, MessageType answer);

  bool ending() const { return ensemble_.ending().has_value(); }

  Ensemble& ensemble_;
  const Settings settings_;
  std::vector<BackendInfo> infos_;
  int ranks_ = 1;
  uint64_t sequence_ = 0;
  bool greeted_ = false;
  json::Value id_;  // of the request under way
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_CONDUCTOR_H_
