// SPDX-License-Identifier: Apache-2.0
#include "bench/conductor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <string>

#include "bench/messages.h"
#include "bench/whole_run.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;

TEST(Conductor, HasTheConversationThatIsDocumented) {
  WholeRun run(3, Plain);
  run.Send(kHello);
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"hello","id":null,"schema_version":1,"version":"1.2.3","backend":"scripted",)"
            R"("replay":null,"nccl":{"version":"2.28.9","path":null,"from":null},"driver":null,)"
            R"("tuner":{"path":"","control":0,"interface":null},"nodes":1,"ranks":3,"processes":3,)"
            R"("gpus":[{"rank":0,"name":"GPU","host_hash":null},{"rank":1,"name":"GPU",)"
            R"("host_hash":null},{"rank":2,"name":"GPU","host_hash":null}],"can":{"collectives":)"
            R"(["allreduce","sendrecv"],"dtypes":["float"],"redops":["sum"],"registered":false,)"
            R"("graph":false,"group_calls":false,"load":false,"chunk":false}})");
  run.Send(MeasureLine());
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"point","id":1,"bytes":1024,"choice":"default","ran":null,"applied":true,)"
            R"("round":0,"repeat":0,"iterations":20,"time_us":12.0,"times_us":[10.0,11.0,12.0],)"
            R"("host_us":13.0,"wrong":0,"source":"scripted"})");
  EXPECT_EQ(run.ReceiveText(), R"({"op":"done","id":1,"points":1})");
  run.Send(R"({"op":"table","id":2,"collective":"allreduce","bytes":[8]})");
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"table","id":2,"rows":[{"bytes":8,"costs":{},"predicted":null}]})");
  run.Send(R"({"op":"quit","id":3})");
  EXPECT_EQ(run.ReceiveText(), R"({"op":"quit","id":3})");
  EXPECT_TRUE(run.Receive().IsNull());
  EXPECT_EQ(run.Finish(), 0);
  for (int process = 0; process < 3; ++process) EXPECT_EQ(run.PlayerStatus(process), 0);
}

TEST(Conductor, TheEndOfTheInputIsQuit) {
  WholeRun run(2, Plain);
  run.Send(kHello);
  run.Send(MeasureLine());
  run.CloseInput();
  EXPECT_EQ(*run.Receive().Find("op")->AsString(), "hello");
  EXPECT_EQ(*run.Receive().Find("op")->AsString(), "point");
  EXPECT_EQ(*run.Receive().Find("op")->AsString(), "done");
  EXPECT_EQ(run.ReceiveText(), R"({"op":"quit","id":null})");
  EXPECT_EQ(run.Finish(), 0);
}

TEST(Conductor, AWrongRequestChangesNothing) {
  WholeRun run(1, Plain);
  run.Send(R"({"op":"measure","id":9,"collective":"allreduce","bytes":[1],"choices":["default"]})");
  const json::Value first = run.Receive();
  EXPECT_EQ(*first.Find("kind")->AsString(), "request");
  EXPECT_EQ(*first.Find("id")->AsInt(), 9);
  EXPECT_EQ(*first.Find("text")->AsString(),
            "the first request must be hello, with a supported schema_version");
  run.Hello();
  for (const std::string& line : {std::string("garbage"), std::string(), MeasureLine(R"(,"x":1)"),
                                  std::string(size_t{3} << 20, 'x')}) {
    run.Send(line);
    EXPECT_EQ(*run.Receive().Find("op")->AsString(), "error");
  }
  run.Send(MeasureLine());
  EXPECT_EQ(*run.Receive().Find("op")->AsString(), "point");
  EXPECT_EQ(*run.Receive().Find("op")->AsString(), "done");
  EXPECT_EQ(run.Finish(), 0);
}

TEST(Conductor, AllProcessesRunTheSameSteps) {
  std::mutex mutex;
  std::map<int, std::vector<std::string>> steps;
  WholeRun run(3, [&](const World& world) {
    Script script;
    script.run = [&, world](const Step& step) {
      const std::lock_guard<std::mutex> lock(mutex);
      steps[world.process].push_back(Serialize(step));
      EXPECT_EQ(step.sequence, steps[world.process].size());
      return TimedAs(world, 5);
    };
    return script;
  });
  run.Hello();
  run.Send(R"({"op":"measure","collective":"allreduce","bytes":[8,16,32],"choices":["default",)"
           R"("tuned",{"algorithm":"ring","protocol":"ll"}],"rounds":4,"default_repeats":2})");
  for (int i = 0; i < 48; ++i) EXPECT_EQ(*run.Receive().Find("op")->AsString(), "point");
  EXPECT_EQ(run.ReceiveText(), R"({"op":"done","id":null,"points":48})");
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(steps[0].size(), 48U);
  EXPECT_EQ(steps[1], steps[0]);
  EXPECT_EQ(steps[2], steps[0]);
}

TEST(Conductor, PicksIterationsForTheTimeThatIsAskedFor) {
  std::atomic<int> trials = 0;
  WholeRun run(2, [&](const World& world) {
    Script script;
    script.run = [&trials, world](const Step& step) {
      if (step.iterations == Iterations::kMin) ++trials;
      return TimedAs(world, 250);
    };
    return script;
  });
  run.Hello();
  run.Send(MeasureLine(R"(,"iterations":0,"target_ms":5,"rounds":3)"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*run.Receive().Find("iterations")->AsInt(), 20);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(trials, 2) << "one for each process";
}

TEST(Conductor, ExchangesReachAllInOrder) {
  std::atomic<int> rounds = 0;
  WholeRun run(4, [&](const World&) {
    Script script;
    script.open = [&rounds](const World& opened, ProcessExchange* exchange, BackendInfo* info) {
      *info = InfoOf(opened);
      for (int i = 0; i < 50; ++i) {
        std::vector<std::string> all;
        const std::string mine = std::to_string(opened.process) + "/" + std::to_string(i);
        EXPECT_TRUE(exchange->AllGather(mine, &all));
        EXPECT_EQ(all.size(), 4U);
        for (size_t process = 0; process < all.size(); ++process) {
          EXPECT_EQ(all[process], std::to_string(process) + "/" + std::to_string(i));
        }
      }
      std::string id = opened.process == 0 ? std::string("\0id", 3) : "";
      EXPECT_TRUE(exchange->Broadcast(&id, opened.process == 0));
      EXPECT_EQ(id, std::string("\0id", 3));
      std::vector<std::string> all;
      EXPECT_TRUE(exchange->AllGather({}, &all));
      EXPECT_FALSE(exchange->AllGather(std::string(ProcessExchange::kMaxBytes + 1, 'x'), &all));
      EXPECT_TRUE(exchange->AllGather(std::string(ProcessExchange::kMaxBytes, 'x'), &all));
      ++rounds;
      return std::optional<OpenError>();
    };
    return script;
  });
  run.Hello();
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(rounds, 4);
}

TEST(Conductor, AnErrorThatIsNotFatalIsAPointLikeOthers) {
  WholeRun run(2, [](const World& world) {
    Script script;
    script.run = [world](const Step& step) {
      StepResult result = TimedAs(world, 5);
      if (step.bytes > 100) {
        result = StepResult();
        result.error = StepError{ErrorKind::kMemory, "too large", world.process, false};
      } else if (step.bytes > 50 && world.process == 1) {
        result.timings[0].wrong = 5;
      }
      return result;
    };
    return script;
  });
  run.Hello();
  run.Send(R"({"op":"measure","collective":"allreduce","bytes":[8,64,128],"choices":["default"]})");
  std::map<int64_t, json::Value> points;
  for (int i = 0; i < 3; ++i) {
    json::Value point = run.Receive();
    points[*point.Find("bytes")->AsInt()] = point;
  }
  EXPECT_EQ(ErrorKindOf(points[8]), "");
  EXPECT_EQ(ErrorKindOf(points[64]), "wrong");
  EXPECT_EQ(*points[64].Find("wrong")->AsInt(), 5);
  EXPECT_EQ(points[64].Find("time_us"), nullptr);
  EXPECT_EQ(ErrorKindOf(points[128]), "memory");
  EXPECT_EQ(run.ReceiveText(), R"({"op":"done","id":null,"points":3})");
  EXPECT_EQ(run.Finish(), 0);
}

TEST(Conductor, UnsupportedStepsAreNotSentToTheBackend) {
  std::atomic<int> asked = 0;
  WholeRun run(1, [&](const World& world) {
    Script script;
    script.run = [&asked, world](const Step&) {
      ++asked;
      return TimedAs(world, 5);
    };
    return script;
  });
  run.Hello();
  const std::pair<std::string, std::string> cases[] = {
      {R"({"op":"measure","collective":"reduce","bytes":[8],"choices":["default"]})", "reduce"},
      {MeasureLine(R"(,"dtype":"half")"), "half"},
      {MeasureLine(R"(,"redop":"max")"), "max"},
      {MeasureLine(R"(,"registered":true)"), "registered buffers"},
      {MeasureLine(R"(,"graph":true,"iterations":0)"), "CUDA graphs"},
      {MeasureLine(R"(,"group_calls":4)"), "a group of calls"},
      {MeasureLine(R"(,"load":true)"), "a load beside the calls"},
      {R"({"op":"measure","collective":"allreduce","bytes":[8],"choices":[{"algorithm":"ring",)"
       R"("protocol":"ll","chunk_bytes":64}]})",
       "a forced chunk size"}};
  for (const auto& [line, what] : cases) {
    run.Send(line);
    const json::Value point = run.Receive();
    EXPECT_EQ(ErrorKindOf(point), "unsupported");
    EXPECT_EQ(*point.Find("error")->Find("text")->AsString(), what + " is not supported here");
    EXPECT_EQ(*run.Receive().Find("op")->AsString(), "done");
  }
  // The list of reductions does not apply to collectives without a reduction.
  run.Send(R"({"op":"measure","collective":"sendrecv","bytes":[8],"choices":["default"],)"
           R"("redop":"max"})");
  EXPECT_EQ(ErrorKindOf(run.Receive()), "");
  run.Receive();
  run.Send(R"({"op":"table","collective":"reduce","bytes":[8]})");
  EXPECT_NE(run.ReceiveText().find("reduce is not supported here"), std::string::npos);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace nccltune::bench
