// SPDX-License-Identifier: Apache-2.0
// Ensemble: all connections of process 0, to the player of each process (see player.h) and to
// standard input and output. While an Ensemble waits for one event, it also sends heartbeats,
// serves exchanges between the processes (see exchange.h) and detects lost players.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/answer.h"
#include "bench/ending.h"
#include "bench/wire.h"
#include "common/json.h"
#include "host/line_channel.h"

namespace nccltune::bench {

// Writes lines to a reader that may be slow or may close the pipe; a write never blocks. The
// descriptor stays in blocking mode, because a change of the mode would affect every process that
// shares the descriptor.
class LineOutput {
 public:
  explicit LineOutput(int descriptor) : descriptor_(descriptor) {}

  void Write(std::string_view line);
  // Writes as much as the reader accepts without blocking.
  void Flush();

  int descriptor() const { return descriptor_; }
  size_t waiting() const { return pending_.size() - written_; }
  // Returns the error that made writing fail; empty while writing works. After a failure, unwritten
  // lines are dropped.
  const std::string& broken() const { return broken_; }
  void Break(std::string why);

 private:
  int descriptor_;
  std::string pending_;
  size_t written_ = 0;
  std::string broken_;
};

// The reason why a run ends early.
struct RunEnd {
  int status = 0;
  ErrorReport error_report;
  bool reported = false;  // true: an answer on standard output has already reported the error
};

class Ensemble {
 public:
  using Clock = Wire::Clock;

  struct Options : EarlyEnd {
    int input = -1;
    int output = -1;
    // Time that the other players have to answer after one player reports a fatal error.
    std::chrono::milliseconds after_fatal{2000};
  };

  // `wires` are the connections to the players of all processes, starting with process 0.
  Ensemble(std::vector<Wire> wires, Options options);

  // Sends a message to all players and waits until each has answered with a message of type
  // `answer`. Returns false if an answer is missing, because the time `until` has passed, another
  // answer reported a fatal error, or the run ends.
  bool Ask(MessageType question, std::string_view payload, MessageType answer,
           Clock::time_point until);
  // Returns the answers to the last question, by process; nullopt for a process without an answer.
  const std::vector<std::optional<std::string>>& answers() const { return answers_; }
  // Returns whether the last question ended early because a player reported a fatal error.
  bool cut_short() const { return cut_short_at_.has_value(); }
  // Returns a text that names the processes without an answer, such as "process 3" or "processes 1,
  // 4-7".
  std::string MissingAnswers() const;

  // Reads the next line of input and returns kLine. Returns kTooLong for a line over 1 MiB, which
  // is skipped, and kEnd at the end of input or when the run ends.
  host::LineBuffer::Result NextLine(std::string* line);
  void WriteAnswer(const json::Value& answer);
  // Waits until at most 64 KiB of the output are unwritten, or until the run ends.
  void WaitForReader();

  // Returns the reason why the run must end; nullopt while the run continues. Only the first reason
  // is kept.
  const std::optional<RunEnd>& ending() const { return ending_; }
  void End(int status, ErrorReport error_report, bool reported = false);
  void MarkReported() {
    if (ending_) ending_->reported = true;
  }
  // Sets the first rank of each process, for error messages.
  void SetFirstRanks(std::vector<int> ranks) { first_ranks_ = std::move(ranks); }

  // Makes all players close their backends and waits for their answers. From then on, a player may
  // close its connection. Returns false if a player did not answer in time.
  bool Quit();
  // Waits until all output has been written, writing fails, or the run ends.
  void FlushOutput();
  // Makes all players exit with the status of `ending`, and waits a short time for them.
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
  // The data that each process has sent for the current AllGather; nullopt until the data arrives.
  std::vector<std::optional<std::string>> gathered_;
  // The time to stop waiting for further answers; set after a fatal answer.
  std::optional<Clock::time_point> cut_short_at_;
  bool quitting_ = false;
  std::vector<bool> lost_;
  std::optional<RunEnd> ending_;
};

}  // namespace nccltune::bench
