// SPDX-License-Identifier: Apache-2.0
// Conductor: the main loop of process 0. It reads requests, makes all processes run the steps (see
// player.h) and writes the answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/answer.h"
#include "bench/backend.h"
#include "bench/ensemble.h"
#include "bench/player.h"
#include "bench/request.h"

namespace nccltune::bench {

class Conductor {
 public:
  struct Options {
    std::string version;
    std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
    // Time that a step may take beyond its own timeout. The backend normally ends a stuck
    // collective itself; this limit handles a backend that does not.
    std::chrono::milliseconds beyond_timeout{std::chrono::seconds(10)};
  };

  Conductor(Ensemble* ensemble, Options settings);

  // Serves requests until the run ends. Returns the exit status of the process.
  int Run();

 private:
  bool Start();
  bool TakeInfos(bool all);
  void ServeRequests();
  int Finish();

  bool NextRequest(BenchRequest* request);
  void Measure(const BenchRequest& request);
  bool MeasureStep(const BenchRequest& request, const Step& step);
  void Table(const BenchRequest& request);
  TableResult TableOf(const Step& step);
  std::optional<StepError> Unsupported(const Step& step) const;

  // Runs the step in all processes. Returns false if the run ends and there is no result.
  bool RunStep(Step step, Point* point);
  // Sends the step to all processes and returns their results, or nullopt if the run ends first. A
  // process that did not answer in time gets a timeout error. After a fatal error of one process,
  // the processes that have not answered get an empty result.
  template <typename Result>
  std::optional<std::vector<Result>> AskAll(MessageType question, Step step, MessageType answer);

  bool ending() const { return ensemble_.ending().has_value(); }

  Ensemble& ensemble_;
  const Options settings_;
  std::vector<BackendInfo> infos_;
  int ranks_ = 1;
  uint64_t sequence_ = 0;
  bool hello_received_ = false;
  json::Value id_;  // the `id` of the current request
};

}  // namespace nccltune::bench
