// SPDX-License-Identifier: Apache-2.0
//
// The connections of process 0: to all players, and its own standard input and output. While it
// waits for one thing, it keeps all connections alive, serves exchanges and detects lost players.
#ifndef NCCLTUNE_BENCH_ENSEMBLE_H_
#define NCCLTUNE_BENCH_ENSEMBLE_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/answer.h"
#include "bench/line_output.h"
#include "bench/wire.h"
#include "common/json.h"
#include "host/line_buffer.h"

namespace nccltune::bench {

// Why a run ends early.
struct RunEnd {
  int status = 0;
  ErrorReport error_report;
  bool reported = false;  // a point on standard output has already reported it
};

class Ensemble {
 public:
  using Clock = Wire::Clock;

  struct Options {
    int input = -1;
    int output = -1;
    // A descriptor that becomes readable when this process must end; -1 for none. The two functions
    // give the reason and the exit status for that case.
    int interrupt = -1;
    std::function<std::string()> why_interrupted = [] { return std::string("interrupted"); };
    std::function<int()> interrupted_status = [] { return 0; };
    // Called once when the run starts to end because of an error.
    std::function<void(int status)> ending = [](int) {};
    // After one player reports a fatal error, the others have this long to answer.
    std::chrono::milliseconds after_fatal{2000};
  };

  // `wires` are the connections to the players of all processes, starting with process 0.
  Ensemble(std::vector<Wire> wires, Options options);

  // Sends a message to all players and waits until each has answered with a message of type
  // `answer`, or until `until`. Returns false if an answer is missing: the time is over, another
  // answer was a fatal error, or the run ends.
  bool Ask(MessageType question, std::string_view payload, MessageType answer,
           Clock::time_point until);
  // The answers to the last question, by process; nullopt: no answer.
  const std::vector<std::optional<std::string>>& answers() const { return answers_; }
  // Whether the last question ended early because a player reported a fatal error.
  bool cut_short() const { return cut_short_at_.has_value(); }
  // Names the processes that have not answered: "process 3", "processes 1, 4-7".
  std::string MissingAnswers() const;

  // Returns the next line of input. The result is kEnd also when the run ends.
  host::LineBuffer::Result NextLine(std::string* line);
  void WriteAnswer(const json::Value& answer);
  // Waits until the reader of standard output has caught up, or until the run ends.
  void WaitForReader();

  // Set when the run must end; only the first reason is kept.
  const std::optional<RunEnd>& ending() const { return ending_; }
  void End(int status, ErrorReport error_report, bool reported = false);
  void MarkReported() {
    if (ending_) ending_->reported = true;
  }
  // Sets the first rank of each process, which error messages name.
  void SetFirstRanks(std::vector<int> ranks) { first_ranks_ = std::move(ranks); }

  // Makes all players close their backends and waits for them. Their connections may close
  // afterwards. Returns false if a player did not answer.
  bool Quit();
  // Waits until all output has been written.
  void FlushOutput();
  // Makes all players end with that status, and waits a short time for them to exit.
  void Abort(const RunEnd& ending);

 private:
  void SendToAll(MessageType type, std::string_view payload);
  // Waits for the next event on any descriptor and handles it.
  void Pump(Clock::time_point until, bool wants_input = false);
  void ReadInput();
  void Handle(size_t process, Message message);
  void Gather(size_t process, std::string part);
  void OnLost(size_t process, const std::string& why);
  bool AllAnswered() const;

  const Options options_;
  std::vector<Wire> wires_;
  host::LineBuffer input_;
  LineOutput output_;
  std::vector<int> first_ranks_;

  MessageType awaited_ = MessageType::kHeartbeat;
  std::vector<std::optional<std::string>> answers_;
  // Parts received for the current exchange, by process.
  std::vector<std::optional<std::string>> gathered_;
  // After a fatal answer: when to stop waiting for the others.
  std::optional<Clock::time_point> cut_short_at_;
  bool quitting_ = false;
  std::vector<bool> lost_;
  std::optional<RunEnd> ending_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENSEMBLE_H_
