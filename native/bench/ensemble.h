// SPDX-License-Identifier: Apache-2.0
//
// All players as process 0 sees them, and its own input and output: whatever it waits for, it keeps
// the connections alive, passes exchanges on and notices who has gone.
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

// Why a run ends before its time.
struct Ending {
  int status = 0;
  Trouble trouble;
  bool told = false;  // on standard output, by a point
};

class Ensemble {
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
    // After an answer that says that nothing more can be run the others have so long for theirs.
    std::chrono::milliseconds after_fatal{2000};
  };

  // `wires` lead to the players of all processes, this one's first.
  Ensemble(std::vector<Wire> wires, Surroundings surroundings);

  // Sends to all and waits for an answer of that type from all, until then. False if one is
  // missing: the time is over, an answer said that nothing more can be run, or the run ends.
  bool Ask(MessageType question, std::string_view payload, MessageType answer,
           Clock::time_point until);
  // What came of the last question, by process.
  const std::vector<std::optional<std::string>>& answers() const { return answers_; }
  // An answer said that nothing more can be run, so that the others were not waited for.
  bool cut_short() const { return cut_.has_value(); }
  // "process 3", "processes 1, 4-7": who did not answer.
  std::string Silent() const;

  // The next line of input; kEnd also when the run ends.
  host::LineBuffer::Result NextLine(std::string* line);
  void Say(const json::Value& answer);
  // Until the reader of the output has caught up, or the run ends.
  void WaitForReader();

  // Set once the run has to end; the first reason stays.
  const std::optional<Ending>& ending() const { return ending_; }
  void End(int status, Trouble trouble, bool told = false);
  void MarkTold() {
    if (ending_) ending_->told = true;
  }
  // The first rank of each process, for what is said of it.
  void SetFirstRanks(std::vector<int> ranks) { first_ranks_ = std::move(ranks); }

  // Has all players close their backends and waits for them; then their connections may end.
  bool Quit();
  // Writes out what was said.
  void FlushWell();
  // Tells all players to end like that and waits a moment for them to go.
  void Abort(const Ending& ending);

 private:
  void SendToAll(MessageType type, std::string_view payload);
  // Waits for whatever comes next, and deals with it.
  void Pump(Clock::time_point until, bool wants_input = false);
  void ReadInput();
  void Handle(size_t process, Message message);
  void Gather(size_t process, std::string part);
  void Lost(size_t process, const std::string& why);
  bool AllAnswered() const;

  const Surroundings surroundings_;
  std::vector<Wire> wires_;
  host::LineBuffer input_;
  LineOutput output_;
  std::vector<int> first_ranks_;

  MessageType awaited_ = MessageType::kHeartbeat;
  std::vector<std::optional<std::string>> answers_;
  std::vector<std::optional<std::string>> gathered_;  // of the exchange under way
  std::optional<Clock::time_point> cut_;              // wait no longer for the other answers
  bool quitting_ = false;
  std::vector<bool> gone_;
  std::optional<Ending> ending_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ENSEMBLE_H_
