// SPDX-License-Identifier: Apache-2.0
#include "bench/whole_run.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "bench/ensemble.h"
#include "bench/player.h"

namespace nccltune::bench {

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
