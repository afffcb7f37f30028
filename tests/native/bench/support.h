// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>

#include "bench/backend.h"
#include "bench/conductor.h"
#include "bench/ensemble.h"
#include "bench/player.h"
#include "common/descriptor.h"
#include "common/json.h"
#include "standard.h"
#include "testing.h"

namespace nccltune::bench {

struct Sockets {
  Descriptor a;
  Descriptor b;
};

inline Sockets SocketPair() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

struct Pipe {
  Descriptor read;
  Descriptor write;
};

inline Pipe MakePipe() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(pipe2(pair, O_CLOEXEC), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

// Reserves the port, so that no other program can listen on it while this object exists.
struct DeafPort {
  Descriptor socket;
  int port = 0;
};

inline sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

inline DeafPort TakePort() {
  std::random_device random;
  while (true) {
    Descriptor taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Below the ports that the kernel gives to connections.
    const int port = static_cast<int>(10'000 + random() % 20'000);
    const sockaddr_in address = Loopback(port);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    if (bind(taken.fd(), at, sizeof address) == 0) return {std::move(taken), port};
  }
}

// A free port of the loopback interface.
inline int FreePort() { return TakePort().port; }

// Calls `done` until it returns true. Returns false after two minutes.
inline bool Eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Connects to the port of 127.0.0.1; waits until somebody listens there.
inline Descriptor ConnectTo(int port) {
  Descriptor connection;
  EXPECT_TRUE(Eventually([&connection, port] {
    connection = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    return connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0;
  }));
  return connection;
}

// Reads until `bytes` bytes have arrived or the other side closes.
inline std::string ReadSome(int descriptor, size_t bytes) {
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = read(descriptor, text.data() + done, bytes - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

inline void WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t got = write(descriptor, bytes.data(), bytes.size());
    ASSERT_GT(got, 0);
    bytes.remove_prefix(static_cast<size_t>(got));
  }
}

// A backend whose functions the test provides.
struct Script {
  std::function<std::optional<OpenError>(const World&, ProcessExchange*, BackendInfo*)> open =
      nullptr;
  std::function<StepResult(const Step&)> run = nullptr;
  std::function<TableResult(const Step&)> table = nullptr;
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
inline BackendInfo InfoOf(const World& world) {
  BackendInfo info;
  info.backend = "scripted";
  info.nccl_version = "2.28.9";
  info.ranks = world.processes;
  info.nodes = 1;
  info.gpus = {{world.process, "GPU", ""}};
  info.collectives = {Collective::kAllReduce, Collective::kSendRecv};
  info.dtypes = {Dtype::kFloat};
  info.redops = {Redop::kSum};
  return info;
}

// An event: Wait blocks until it is set.
class Latch {
 public:
  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
  }
  void Wait() {
    EXPECT_TRUE(Eventually([this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      return set_;
    }));
  }

 private:
  std::mutex mutex_;
  bool set_ = false;
};

// Runs conductor, ensemble, players and backend threads together, with scripted backends.

inline constexpr const char* kHello = R"({"op":"hello","schema_version":1})";

// Returns a measure request: one 1 KiB all-reduce with the default choice, plus `members`.
inline std::string MeasureLine(const std::string& members = "") {
  return R"({"op":"measure","id":1,"collective":"allreduce","bytes":[1024],"choices":["default"])" +
         members + "}";
}

// Returns the error kind of a point; empty if it has no error.
inline std::string ErrorKindOf(const json::Value& point) {
  const json::Value* error = point.Find("error");
  return error == nullptr ? "" : *error->Find("kind")->AsString();
}

inline StepResult TimedAs(const World& world, double time_us) {
  StepResult result;
  result.timings = {{world.process, time_us, time_us + 1, 0}};
  return result;
}

// A script that defines nothing.
inline Script Plain(const World& /*world*/) { return {}; }

// A complete run inside this process: one thread for the conductor, one for each player.
class WholeRun {
 public:
  // `script` is called for each process. What it does not define succeeds.
  WholeRun(int processes, const std::function<Script(const World&)>& script,
           Conductor::Options settings = {})
      : interrupt_(eventfd(0, EFD_CLOEXEC)) {
    signal(SIGPIPE, SIG_IGN);
    settings.version = "1.2.3";
    std::vector<Wire> wires;
    for (int process = 0; process < processes; ++process) {
      World world;
      world.process = process;
      world.processes = processes;
      Sockets sockets = SocketPair();
      kill_switches_.emplace_back(dup(sockets.b.fd()));
      wires.emplace_back(std::move(sockets.a));
      players_.emplace_back([this, world, script = Completed(world, script(world)),
                             wire = Wire(std::move(sockets.b))]() mutable {
        Player player(world, std::make_unique<ScriptedBackend>(std::move(script)), std::move(wire),
                      {});
        std::string why;
        const int status = player.Run(&why);
        Kill(world.process);  // the death of a process closes its descriptors too
        const std::lock_guard<std::mutex> lock(mutex_);
        statuses_[world.process] = status;
      });
    }
    conductor_ = std::thread([this, settings, wires = std::move(wires)]() mutable {
      Ensemble::Options options;
      options.input = input_.read.fd();
      options.output = output_.write.fd();
      options.interrupt = interrupt_.fd();
      options.why_interrupted = [] { return std::string("ended by SIGTERM"); };
      options.interrupted_status = [] { return 143; };
      options.after_fatal = std::chrono::milliseconds(200);
      {
        Ensemble ensemble(std::move(wires), std::move(options));
        status_ = Conductor(&ensemble, settings).Run();
      }
      output_.write.Close();
    });
  }
  ~WholeRun() { Finish(); }
  WholeRun(const WholeRun&) = delete;
  WholeRun& operator=(const WholeRun&) = delete;

  void Send(const std::string& line) { WriteAll(input_.write.fd(), line + "\n"); }
  void Hello() {
    Send(kHello);
    EXPECT_EQ(*Receive().Find("op")->AsString(), "hello");
  }

  // Returns the next line of output; null after the last one.
  json::Value Receive() {
    std::string line;
    char byte = 0;
    while (read(output_.read.fd(), &byte, 1) == 1 && byte != '\n') line += byte;
    if (line.empty()) return {};
    json::Value value;
    json::Error error;
    EXPECT_TRUE(json::Parse(line, &value, &error)) << line;
    return value;
  }
  std::string ReceiveText() { return json::Write(Receive()); }

  // Closes the connection of the process, as its death would.
  void Kill(int process) { shutdown(kill_switches_[static_cast<size_t>(process)].fd(), SHUT_RDWR); }
  void Interrupt() {
    const uint64_t one = 1;
    WriteAll(interrupt_.fd(), {reinterpret_cast<const char*>(&one), sizeof one});
  }
  void CloseInput() { input_.write.Close(); }
  void CloseOutput() { output_.read.Close(); }

  // Closes the input and returns the conductor's exit status.
  int Finish() {
    if (conductor_.joinable()) {
      CloseInput();
      conductor_.join();
      for (std::thread& player : players_) player.join();
    }
    return status_;
  }
  int PlayerStatus(int process) { return statuses_.at(process); }

 private:
  static Script Completed(const World& world, Script script) {
    if (!script.open) {
      script.open = [](const World& opened, ProcessExchange*, BackendInfo* info) {
        *info = InfoOf(opened);
        return std::optional<OpenError>();
      };
    }
    if (!script.run) {
      script.run = [world](const Step&) { return TimedAs(world, 10 + world.process); };
    }
    if (!script.table) script.table = [](const Step&) { return TableResult(); };
    return script;
  }

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
