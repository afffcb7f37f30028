// SPDX-License-Identifier: Apache-2.0
#include "bench/conductor.h"

#include <sys/eventfd.h>

#include "bench/ending.h"
#include "bench/player.h"
#include "bench/support.h"
#include "bench/wire.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;

TEST(Conductor, HasTheConversationThatIsDocumented) {
  WholeRun run(3, Plain);
  run.Send(kHello);
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"hello","id":null,"schema_version":1,"version":"1.2.3","backend":"scripted",)"
            R"("nccl":{"version":"2.28.9","path":null,"from":null},"driver":null,)"
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
    return Script{.run = [&, world](const Step& step) {
      const std::lock_guard<std::mutex> lock(mutex);
      steps[world.process].push_back(Serialize(step));
      EXPECT_EQ(step.sequence, steps[world.process].size());
      return TimedAs(world, 5);
    }};
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

TEST(Conductor, ExchangesReachAllInOrder) {
  std::atomic<int> rounds = 0;
  WholeRun run(4, [&](const World&) {
    return Script{
        .open = [&rounds](const World& opened, ProcessExchange* exchange, BackendInfo* info) {
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
        }};
  });
  run.Hello();
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(rounds, 4);
}

TEST(Conductor, AnErrorThatIsNotFatalIsAPointLikeOthers) {
  WholeRun run(2, [](const World& world) {
    return Script{.run = [world](const Step& step) {
      StepResult result = TimedAs(world, 5);
      if (step.bytes > 100) {
        result = StepResult();
        result.error = StepError{ErrorKind::kMemory, "too large", world.process, false};
      } else if (step.bytes > 50 && world.process == 1) {
        result.timings[0].wrong = 5;
      }
      return result;
    }};
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
    return Script{.run = [&asked, world](const Step&) {
      ++asked;
      return TimedAs(world, 5);
    }};
  });
  run.Hello();
  const std::pair<std::string, std::string> cases[] = {
      {R"({"op":"measure","collective":"reduce","bytes":[8],"choices":["default"]})", "reduce"},
      {MeasureLine(R"(,"dtype":"half")"), "half"},
      {MeasureLine(R"(,"redop":"max")"), "max"},
      {MeasureLine(R"(,"registered":true)"), "registered buffers"},
      {MeasureLine(R"(,"graph":true)"), "CUDA graphs"},
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
  EXPECT_TRUE(Has(run.ReceiveText(), "reduce is not supported here"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(asked, 1);
}

TEST(Conductor, ABackendThatCannotOpenEndsTheRun) {
  for (const auto& [kind, status] :
       {std::pair(OpenError::Kind::kCannotRun, 3), std::pair(OpenError::Kind::kBadInput, 2),
        std::pair(OpenError::Kind::kFailed, 4)}) {
    std::atomic<int> aborted = 0;
    WholeRun run(3, [&, kind = kind](const World&) {
      return Script{
          .open =
              [kind](const World& opened, ProcessExchange* exchange, BackendInfo* info) {
                *info = InfoOf(opened);
                if (opened.process == 1) {
                  return std::optional(OpenError{kind, "no GPU", "use a GPU", 1});
                }
                // The processes that can open the backend wait for process 1 until they are
                // aborted.
                std::vector<std::string> all;
                EXPECT_FALSE(exchange->AllGather("", &all));
                return std::optional(OpenError{OpenError::Kind::kFailed, "interrupted", "", -1});
              },
          .abort = [&aborted] { ++aborted; }};
    });
    EXPECT_EQ(run.ReceiveText(), R"({"op":"error","id":null,"kind":"start","text":"no GPU",)"
                                 R"("hint":"use a GPU","rank":1})");
    EXPECT_EQ(run.Finish(), status);
    EXPECT_EQ(run.PlayerStatus(2), status);
    EXPECT_EQ(aborted, 3);
  }
}

TEST(Conductor, AnOpenThatNeverReturnsIsReported) {
  Latch aborted;
  Conductor::Options settings;
  settings.start_limit = milliseconds(3000);
  WholeRun run(
      2,
      [&](const World&) {
        return Script{.open =
                          [&aborted](const World& opened, ProcessExchange*, BackendInfo* info) {
                            *info = InfoOf(opened);
                            if (opened.process == 1) aborted.Wait();
                            return std::optional<OpenError>();
                          },
                      .abort = [&aborted] { aborted.Set(); }};
      },
      settings);
  EXPECT_EQ(*run.Receive().Find("text")->AsString(),
            "process 1 did not make the communicator within 3 s");
  EXPECT_EQ(run.Finish(), 4);
}

TEST(Conductor, AllMustHaveTheSameNccl) {
  WholeRun run(2, [](const World&) {
    return Script{.open = [](const World& opened, ProcessExchange*, BackendInfo* info) {
      *info = InfoOf(opened);
      if (opened.process == 1) info->nccl_version = "2.32.3";
      return std::optional<OpenError>();
    }};
  });
  EXPECT_EQ(*run.Receive().Find("text")->AsString(),
            "process 1 has NCCL 2.32.3, process 0 has 2.28.9");
  EXPECT_EQ(run.Finish(), 3);
}

TEST(Conductor, AFatalErrorEndsTheRunAfterItsPoint) {
  Latch aborted;
  WholeRun run(3, [&](const World& world) {
    return Script{.run =
                      [&aborted, world](const Step&) {
                        if (world.process == 2) {
                          StepResult result;
                          result.error = StepError{ErrorKind::kTimeout, "rank 2 is stuck", 2, true};
                          return result;
                        }
                        // The others are inside a collective that never completes.
                        aborted.Wait();
                        return StepResult();
                      },
                  .abort = [&aborted] { aborted.Set(); }};
  });
  run.Hello();
  run.Send(MeasureLine(R"(,"rounds":5)"));
  const json::Value point = run.Receive();
  EXPECT_EQ(ErrorKindOf(point), "timeout");
  EXPECT_EQ(*point.Find("error")->Find("rank")->AsInt(), 2);
  EXPECT_TRUE(run.Receive().IsNull()) << "no second point, no done";
  EXPECT_EQ(run.Finish(), 4);
  EXPECT_EQ(run.PlayerStatus(1), 4);
}

TEST(Conductor, ABackendThatNeverReturnsIsATimeout) {
  Latch aborted;
  Conductor::Options settings;
  settings.beyond_timeout = milliseconds(2900);
  WholeRun run(
      2,
      [&](const World& world) {
        return Script{.run =
                          [&aborted, world](const Step&) {
                            if (world.process == 1) aborted.Wait();
                            return TimedAs(world, 5);
                          },
                      .abort = [&aborted] { aborted.Set(); }};
      },
      settings);
  run.Hello();
  run.Send(MeasureLine(R"(,"timeout_s":0.1)"));
  const json::Value point = run.Receive();
  EXPECT_EQ(ErrorKindOf(point), "timeout");
  EXPECT_EQ(*point.Find("error")->Find("text")->AsString(),
            "allreduce of 1024 bytes with NCCL's default is stuck: process 1 gave no answer within "
            "3 s");
  EXPECT_EQ(run.Finish(), 4);
}

TEST(Conductor, AFatalTableEndsTheRun) {
  WholeRun run(2, [](const World& world) {
    return Script{.table = [world](const Step&) {
      TableResult result;
      if (world.process == 1) result.error = StepError{ErrorKind::kNccl, "broken", 1, true};
      return result;
    }};
  });
  run.Hello();
  run.Send(R"({"op":"table","id":4,"collective":"allreduce","bytes":[8,16]})");
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"table","id":4,"rows":[{"bytes":8,"error":{"kind":"nccl","text":"broken",)"
            R"("rank":1}}]})");
  EXPECT_TRUE(run.Receive().IsNull());
  EXPECT_EQ(run.Finish(), 4);
}

// A backend whose steps begin and block until it is aborted.
Script Stuck(std::atomic<int>* begun, Latch* aborted) {
  return Script{.run =
                    [=](const Step&) {
                      ++*begun;
                      aborted->Wait();
                      return StepResult();
                    },
                .abort = [=] { aborted->Set(); }};
}

// The death of any process, in a step and between two requests.
class DeathTest : public ::testing::TestWithParam<int> {};

TEST_P(DeathTest, DuringAStepIsReportedInThePoint) {
  Latch aborted;
  std::atomic<int> begun = 0;
  WholeRun run(3, [&](const World&) { return Stuck(&begun, &aborted); });
  run.Hello();
  run.Send(MeasureLine());
  ASSERT_TRUE(Eventually([&] { return begun == 3; }));
  run.Kill(GetParam());
  const json::Value point = run.Receive();
  EXPECT_EQ(ErrorKindOf(point), "died");
  EXPECT_EQ(*point.Find("error")->Find("rank")->AsInt(), GetParam());
  EXPECT_EQ(*point.Find("error")->Find("text")->AsString(),
            "process " + std::to_string(GetParam()) + " was lost: the connection was closed");
  EXPECT_TRUE(run.Receive().IsNull());
  EXPECT_EQ(run.Finish(), 4);
  for (int process = 0; process < 3; ++process) EXPECT_EQ(run.PlayerStatus(process), 4);
}

TEST_P(DeathTest, BetweenRequestsIsReportedAsAnError) {
  WholeRun run(3, Plain);
  run.Hello();
  run.Kill(GetParam());
  const json::Value error = run.Receive();
  EXPECT_EQ(*error.Find("op")->AsString(), "error");
  EXPECT_EQ(*error.Find("kind")->AsString(), "died");
  EXPECT_EQ(*error.Find("rank")->AsInt(), GetParam());
  EXPECT_TRUE(run.Receive().IsNull());
  EXPECT_EQ(run.Finish(), 4);
}

INSTANTIATE_TEST_SUITE_P(EachProcess, DeathTest, ::testing::Values(0, 1, 2));

TEST(Conductor, ASignalEndsAll) {
  Latch aborted;
  std::atomic<int> begun = 0;
  WholeRun run(2, [&](const World&) { return Stuck(&begun, &aborted); });
  run.Hello();
  run.Send(MeasureLine());
  ASSERT_TRUE(Eventually([&] { return begun == 2; }));
  run.Interrupt();
  EXPECT_EQ(run.ReceiveText(), R"({"op":"error","id":1,"kind":"signal","text":"ended by SIGTERM",)"
                               R"("hint":null,"rank":null})");
  EXPECT_EQ(run.Finish(), 143);
  EXPECT_EQ(run.PlayerStatus(1), 143);
}

TEST(Conductor, WithoutAReaderTheRunEnds) {
  WholeRun run(2, Plain);
  run.Hello();
  run.CloseOutput();
  EXPECT_EQ(run.Finish(), 4);
  EXPECT_EQ(run.PlayerStatus(1), 4);
}

TEST(Conductor, ASlowReaderHoldsTheStepsUp) {
  std::atomic<int> steps = 0;
  WholeRun run(1, [&](const World& world) {
    return Script{.run = [&steps, world](const Step&) {
      ++steps;
      return TimedAs(world, 5);
    }};
  });
  run.Hello();
  run.Send(MeasureLine(R"(,"rounds":3000)"));
  // The output fills the pipe's buffer and our own queue; then no new step starts.
  int seen = -1;
  EXPECT_TRUE(Eventually([&] {
    const int before = std::exchange(seen, steps.load());
    std::this_thread::sleep_for(milliseconds(100));
    return seen > 0 && seen == before;
  }));
  EXPECT_LT(steps, 2000);
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(*run.Receive().Find("op")->AsString(), "point");
  EXPECT_EQ(*run.Receive().Find("points")->AsInt(), 3000);
  EXPECT_EQ(run.Finish(), 0);
}

TEST(Conductor, ClosesTheBackendsAtAGoodEndOnly) {
  std::atomic<int> closed = 0;
  std::atomic<int> aborted = 0;
  const auto script = [&](const World&) {
    Script counting;
    counting.close = [&closed] { ++closed; };
    counting.abort = [&aborted] { ++aborted; };
    return counting;
  };
  EXPECT_EQ(WholeRun(2, script).Finish(), 0);
  EXPECT_EQ(closed, 2);
  EXPECT_EQ(aborted, 0);
  WholeRun run(2, script);
  run.Hello();
  run.Kill(1);
  EXPECT_EQ(run.Finish(), 4);
  EXPECT_EQ(closed, 2);
  EXPECT_EQ(aborted, 2);
}

// A single player, whose conductor sends messages that a real one never sends.
TEST(Player, EndsWhenItsConductorTalksNonsense) {
  for (const MessageType type :
       {MessageType::kOpened, MessageType::kGathered, MessageType::kAbort}) {
    Sockets sockets = SocketPair();
    World world;
    world.processes = 2;
    world.process = 1;
    Script script;
    script.open = [](const World&, ProcessExchange*, BackendInfo*) {
      return std::optional<OpenError>();
    };
    Player player(world, std::make_unique<ScriptedBackend>(script), Wire(std::move(sockets.a)), {});
    Wire conductor(std::move(sockets.b));
    conductor.Send(type, "nonsense");
    std::string why;
    EXPECT_EQ(player.Run(&why), kFailed);
    EXPECT_TRUE(Has(why, "could not be read")) << why;
    EXPECT_TRUE(player.lost_conductor());
  }
}

TEST(Player, ReportsWhyItLeaves) {
  Sockets sockets = SocketPair();
  const Descriptor event(eventfd(1, EFD_CLOEXEC));
  int forced = 0;
  const EarlyEnd options = {event.fd(), [] { return std::string("ended by SIGTERM"); },
                            [] { return 143; }, [&forced](int status) { forced = status; }};
  Player player(World(), std::make_unique<ScriptedBackend>(Script()), Wire(std::move(sockets.a)),
                options);
  std::string why;
  EXPECT_EQ(player.Run(&why), 143);
  EXPECT_EQ(forced, 143);
  EXPECT_FALSE(player.lost_conductor());
  Wire conductor(std::move(sockets.b));
  std::vector<Message> messages;
  conductor.Receive(&messages);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].type, MessageType::kLeaving);
  EXPECT_EQ(messages[0].payload, "it was ended by SIGTERM");
}

}  // namespace
}  // namespace nccltune::bench
