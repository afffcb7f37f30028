// SPDX-License-Identifier: Apache-2.0
//
// Conductor, ensemble, players and workers together, over scripted backends.
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
#include "bench/descriptor.h"
#include "bench/support.h"
#include "common/json.h"

namespace nccltune::bench {

inline constexpr const char* kHello = R"({"op":"hello","schema_version":1})";

// One 1 KiB all-reduce with the default, and `members`.
std::string MeasureLine(const std::string& members = "");

// Of a point; empty if it has none.
std::string ErrorKindOf(const json::Value& point);

StepResult TimedAs(const World& world, double time_us);

// Leaves everything open.
Script Plain(const World& world);

// A whole run in this process: one thread for the conductor, one for each player.
class WholeRun {
 public:
  // `script` for each process; what it leaves open is done well.
  WholeRun(int processes, const std::function<Script(const World&)>& script,
           Conductor::Settings settings = {});
  ~WholeRun() { Finish(); }
  WholeRun(const WholeRun&) = delete;
  WholeRun& operator=(const WholeRun&) = delete;

  void Send(const std::string& line) { WriteAll(input_.write.get(), line + "\n"); }
  void Hello();

  // The next line of output; null after the last.
  json::Value Receive();
  std::string ReceiveText() { return json::Write(Receive()); }

  // Takes the process off the wire, as its death would.
  void Kill(int process);
  void Interrupt();
  void CloseInput() { input_.write.Close(); }
  void CloseOutput() { output_.read.Close(); }

  // Ends the input; the conductor's exit status.
  int Finish();
  int PlayerStatus(int process) { return statuses_.at(process); }

 private:
  static Script Completed(const World& world, Script script);

  Pipe input_ = MakePipe();
  Pipe output_ = MakePipe();
  Descriptor interrupt_;
  std::deque<Descriptor> kill_switches_;  // the players' sockets, which stay where they are
  std::mutex mutex_;
  std::map<int, int> statuses_;
  int status_ = -1;
  std::vector<std::thread> players_;
  std::thread conductor_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_TESTS_BENCH_WHOLE_RUN_H_
