// SPDX-License-Identifier: Apache-2.0
//
// Runs conductor, ensemble, players and backend threads together, with scripted backends.
#ifndef NCCLTUNE_TESTS_BENCH_WHOLE_RUN_H_
#define NCCLTUNE_TESTS_BENCH_WHOLE_RUN_H_

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/conductor.h"
#include "bench/support.h"
#include "common/descriptor.h"
#include "common/json.h"

namespace nccltune::bench {

inline constexpr const char* kHello = R"({"op":"hello","schema_version":1})";

// Returns a measure request: one 1 KiB all-reduce with the default choice, plus `members`.
std::string MeasureLine(const std::string& members = "");

// Returns the error kind of a point; empty if it has no error.
std::string ErrorKindOf(const json::Value& point);

StepResult TimedAs(const World& world, double time_us);

// A script that defines nothing.
Script Plain(const World& world);

// A complete run inside this process: one thread for the conductor, one for each player.
class WholeRun {
 public:
  // `script` is called for each process. What it does not define succeeds.
  WholeRun(int processes, const std::function<Script(const World&)>& script,
           Conductor::Options settings = {});
  ~WholeRun() { Finish(); }
  WholeRun(const WholeRun&) = delete;
  WholeRun& operator=(const WholeRun&) = delete;

  void Send(const std::string& line) { WriteAll(input_.write.fd(), line + "\n"); }
  void Hello();

  // Returns the next line of output; null after the last one.
  json::Value Receive();
  std::string ReceiveText() { return json::Write(Receive()); }

  // Closes the connection of the process, as its death would.
  void Kill(int process);
  void Interrupt();
  void CloseInput() { input_.write.Close(); }
  void CloseOutput() { output_.read.Close(); }

  // Closes the input and returns the conductor's exit status.
  int Finish();
  int PlayerStatus(int process) { return statuses_.at(process); }

 private:
  static Script Completed(const World& world, Script script);

  Pipe input_ = MakePipe();
  Pipe output_ = MakePipe();
  Descriptor interrupt_;
  // The players' sockets; a deque, because they must not move.
  std::deque<Descriptor> kill_switches_;
  std::mutex mutex_;
  std::map<int, int> statuses_;
  int status_ = -1;
  std::vector<std::thread> players_;
  std::thread conductor_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_TESTS_BENCH_WHOLE_RUN_H_
