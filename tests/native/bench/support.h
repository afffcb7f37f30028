// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_BENCH_SUPPORT_H_
#define NCCLTUNE_TESTS_BENCH_SUPPORT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "common/descriptor.h"

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

}  // namespace nccltune::bench

#endif  // NCCLTUNE_TESTS_BENCH_SUPPORT_H_
