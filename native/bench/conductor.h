// SPDX-License-Identifier: Apache-2.0
//
// Process 0's lead of a run: takes requests, has all players run the steps, answers.
#ifndef NCCLTUNE_BENCH_CONDUCTOR_H_
#define NCCLTUNE_BENCH_CONDUCTOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/answer.h"
#include "bench/backend.h"
#include "bench/line_output.h"
#include "bench/messages.h"
#include "bench/point.h"
#include "bench/request.h"
#include "bench/schedule.h"
#include "bench/wire.h"
#include "host/line_buffer.h"

namespace nccltune::bench {

class Conductor {
 public:
  using Clock = Wire::Clock;

  struct Surroundings {
    int input = -1;
    int output = -1;
    // Readable when this process has to end, -1 for none; and what to say of it then.
    int interrupt = -1;
    std::function<std::string()> why_interrupted = [] { return std::string("interrupted"); };
    std::function<int()> interrupted_status = [] { return 0; };
    // Called once a bad end has begun.
    std::function<void(int status)> ending = [](int) {};
    std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
    std::string version;
  };

  // `wires` lead to the players of all processes, this one's first.
  Conductor(std::vector<Wire> wires, Surroundings surroundings);

  // The whole run; the process's exit status.
  int Run();

 private:
  // Why the run ends before its time.
  struct Ending {
    int status = 0;
    Trouble trouble;
    bool told = false;  // on standard output, with a point
  };

  bool Start();
  void Converse();
  int FinishWell();
  int FinishBadly();

  bool NextRequest(Request* request);
  void Measure(const Request& request);
  bool MeasureStep(const Request& request, Iterations* iterations, Step step);
  void Table(const Request& request);
  std::optional<StepError> Unsupported(const Step& step) const;

  // Runs the step everywhere. False: the run ends and there is no result.
  bool RunStep(Step* step, Point* point);
  // Sends the step and waits for all answers of that type. Those that are missing stay empty, which
  // is so only when the run ends or one that came is fatal.
  void Ask(MessageType question, const Step& step, MessageType answer);
  template <typename Result>
  std::vector<Result> Answers() const;

  void SendToAll(MessageType type, std::string_view payload);
  // Until all players have answered or `until` is there; false then, and when the run ends.
  bool WaitForAll(MessageType type, Clock::time_point until);
  // Waits for whatever comes next, and deals with it.
  void Pump(Clock::time_point until, bool wants_input = false);
  void Handle(size_t process, Message message);
  void Gather(size_t process, std::string part);
  void Lost(size_t process, const std::string& why);
  void End(int status, Trouble trouble, bool told = false);
  void Say(const json::Value& answer);
  std::string Processes(const std::vector<int>& processes) const;

  const Surroundings surroundings_;
  std::vector<Wire> wires_;
  host::LineBuffer input_;
  LineOutput output_;
  std::vector<BackendInfo> infos_;
  int ranks_ = 1;

  MessageType awaited_ = MessageType::kHeartbeat;
  std::vector<std::optional<std::string>> answers_;   // to what was asked last
  std::vector<std::optional<std::string>> gathered_;  // of the exchange under way
  std::optional<Clock::time_point> cut_;              // a fatal answer came: wait no longer
  uint64_t sequence_ = 0;
  bool greeted_ = false;
  bool quitting_ = false;
  std::vector<bool> gone_;  // ended in the course of quitting
  std::optional<Ending> ending_;
  json::Value id_;  // of the request under way
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_CONDUCTOR_H_
