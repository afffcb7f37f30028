// SPDX-License-Identifier: Apache-2.0
#include "bench/support.h"

#include <sys/eventfd.h>

#include "bench/ensemble.h"
#include "bench/player.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

Sockets SocketPair() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

Pipe MakePipe() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(pipe2(pair, O_CLOEXEC), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

DeafPort TakePort() {
  Descriptor taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(taken.fd(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(taken.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return {std::move(taken), ntohs(address.sin_port)};
}

int FreePort() { return TakePort().port; }

Descriptor ConnectTo(int port) {
  Descriptor connection;
  EXPECT_TRUE(Eventually([&connection, port] {
    connection = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    return connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0;
  }));
  return connection;
}

std::string ReadSome(int descriptor, size_t bytes) {
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

void WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t got = write(descriptor, bytes.data(), bytes.size());
    ASSERT_GT(got, 0);
    bytes.remove_prefix(static_cast<size_t>(got));
  }
}

bool Eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

BackendInfo InfoOf(const World& world) {
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

void Latch::Set() {
  const std::lock_guard<std::mutex> lock(mutex_);
  set_ = true;
}

void Latch::Wait() {
  EXPECT_TRUE(Eventually([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return set_;
  }));
}

std::string MeasureLine(const std::string& members) {
  return R"({"op":"measure","id":1,"collective":"allreduce","bytes":[1024],"choices":["default"])" +
         members + "}";
}

std::string ErrorKindOf(const json::Value& point) {
  const json::Value* error = point.Find("error");
  return error == nullptr ? "" : *error->Find("kind")->AsString();
}

StepResult TimedAs(const World& world, double time_us) {
  StepResult result;
  result.timings = {{world.process, time_us, time_us + 1, 0}};
  return result;
}

Script Plain(const World& /*world*/) { return {}; }

WholeRun::WholeRun(int processes, const std::function<Script(const World&)>& script,
                   Conductor::Options settings)
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

void WholeRun::Hello() {
  Send(kHello);
  EXPECT_EQ(*Receive().Find("op")->AsString(), "hello");
}

json::Value WholeRun::Receive() {
  std::string line;
  char byte = 0;
  while (read(output_.read.fd(), &byte, 1) == 1 && byte != '\n') line += byte;
  if (line.empty()) return {};
  json::Value value;
  json::Error error;
  EXPECT_TRUE(json::Parse(line, &value, &error)) << line;
  return value;
}

void WholeRun::Kill(int process) {
  shutdown(kill_switches_[static_cast<size_t>(process)].fd(), SHUT_RDWR);
}

void WholeRun::Interrupt() {
  const uint64_t one = 1;
  WriteAll(interrupt_.fd(), {reinterpret_cast<const char*>(&one), sizeof one});
}

int WholeRun::Finish() {
  if (conductor_.joinable()) {
    CloseInput();
    conductor_.join();
    for (std::thread& player : players_) player.join();
  }
  return status_;
}

Script WholeRun::Completed(const World& world, Script script) {
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

}  // namespace nccltune::bench
