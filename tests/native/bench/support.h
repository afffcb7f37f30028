// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_BENCH_SUPPORT_H_
#define NCCLTUNE_TESTS_BENCH_SUPPORT_H_

#include "bench/backend.h"
#include "bench/conductor.h"
#include "common/descriptor.h"
#include "common/json.h"
#include "standard.h"

namespace nccltune::bench {

struct Sockets {
  Descriptor a;
  Descriptor b;
};
Sockets SocketPair();

struct Pipe {
  Descriptor read;
  Descriptor write;
};
Pipe MakePipe();

// A free port of the loopback interface.
int FreePort();
// Reserves the port, so that no other program can listen on it while this object exists.
struct DeafPort {
  Descriptor socket;
  int port = 0;
};
DeafPort TakePort();

// Connects to the port of 127.0.0.1; waits until somebody listens there.
Descriptor ConnectTo(int port);

// Reads until `bytes` bytes have arrived or the other side closes.
std::string ReadSome(int descriptor, size_t bytes);
void WriteAll(int descriptor, std::string_view bytes);

// Calls `done` until it returns true. Returns false after ten seconds.
bool Eventually(const std::function<bool()>& done);

// A backend whose functions the test provides.
struct Script {
  std::function<std::optional<OpenError>(const World&, ProcessExchange*, BackendInfo*)> open;
  std::function<StepResult(const Step&)> run;
  std::function<TableResult(const Step&)> table;
  std::function<void()> close = [] {};
  std::function<void()> abort = [] {};
};

class ScriptedBackend : public Backend {
 public:
  explicit ScriptedBackend(Script script) : script_(std::move(script)) {}

  std::optional<OpenError> Open(const World& world, ProcessExchange* exchange,
                                BackendInfo* info) override {
    return script_.open(world, exchange, info);
  }
  StepResult Run(const Step& step) override { return script_.run(step); }
  TableResult Table(const Step& step) override { return script_.table(step); }
  void Close() override { script_.close(); }
  void Abort() noexcept override { script_.abort(); }

 private:
  Script script_;
};

// Returns the description of a backend with one GPU for each process.
BackendInfo InfoOf(const World& world);

// An event: Wait blocks until it is set.
class Latch {
 public:
  void Set();
  void Wait();

 private:
  std::mutex mutex_;
  bool set_ = false;
};

// Runs conductor, ensemble, players and backend threads together, with scripted backends.

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

#endif  // NCCLTUNE_TESTS_BENCH_SUPPORT_H_
