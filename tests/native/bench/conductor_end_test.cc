// SPDX-License-Identifier: Apache-2.0
// Tests how runs end after an error.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "bench/whole_run.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;

TEST(Conductor, ABackendThatCannotOpenEndsTheRun) {
  for (const auto& [kind, status] :
       {std::pair(OpenError::Kind::kCannotRun, 3), std::pair(OpenError::Kind::kBadInput, 2),
        std::pair(OpenError::Kind::kFailed, 4)}) {
    std::atomic<int> aborted = 0;
    WholeRun run(3, [&, kind = kind](const World&) {
      Script script;
      script.open = [kind](const World& opened, ProcessExchange* exchange, BackendInfo* info) {
        *info = InfoOf(opened);
        if (opened.process == 1) {
          return std::optional(OpenError{kind, "no GPU", "use --replay", 1});
        }
        // The processes that can open the backend wait for process 1 until they are aborted.
        std::vector<std::string> all;
        EXPECT_FALSE(exchange->AllGather("", &all));
        return std::optional(OpenError{OpenError::Kind::kFailed, "interrupted", "", -1});
      };
      script.abort = [&aborted] { ++aborted; };
      return script;
    });
    EXPECT_EQ(run.ReceiveText(), R"({"op":"error","id":null,"kind":"start","text":"no GPU",)"
                                 R"("hint":"use --replay","rank":1})");
    EXPECT_EQ(run.Finish(), status);
    EXPECT_EQ(run.PlayerStatus(2), status);
    EXPECT_EQ(aborted, 3);
  }
}

TEST(Conductor, AnOpenThatNeverReturnsIsReported) {
  Latch aborted;
  Conductor::Options settings;
  settings.start_limit = milliseconds(200);
  WholeRun run(
      2,
      [&](const World&) {
        Script script;
        script.open = [&aborted](const World& opened, ProcessExchange*, BackendInfo* info) {
          *info = InfoOf(opened);
          if (opened.process == 1) aborted.Wait();
          return std::optional<OpenError>();
        };
        script.abort = [&aborted] { aborted.Set(); };
        return script;
      },
      settings);
  EXPECT_EQ(*run.Receive().Find("text")->AsString(),
            "process 1 did not make the communicator within 0.2 s");
  EXPECT_EQ(run.Finish(), 4);
}

TEST(Conductor, AllMustHaveTheSameNccl) {
  WholeRun run(2, [](const World&) {
    Script script;
    script.open = [](const World& opened, ProcessExchange*, BackendInfo* info) {
      *info = InfoOf(opened);
      if (opened.process == 1) info->nccl_version = "2.32.3";
      return std::optional<OpenError>();
    };
    return script;
  });
  EXPECT_EQ(*run.Receive().Find("text")->AsString(),
            "process 1 has NCCL 2.32.3, process 0 has 2.28.9");
  EXPECT_EQ(run.Finish(), 3);
}

TEST(Conductor, AFatalErrorEndsTheRunAfterItsPoint) {
  Latch aborted;
  WholeRun run(3, [&](const World& world) {
    Script script;
    script.run = [&aborted, world](const Step&) {
      if (world.process == 2) {
        StepResult result;
        result.error = StepError{ErrorKind::kTimeout, "rank 2 is stuck", 2, true};
        return result;
      }
      // The others are inside a collective that never completes.
      aborted.Wait();
      return StepResult();
    };
    script.abort = [&aborted] { aborted.Set(); };
    return script;
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
  settings.beyond_timeout = milliseconds(100);
  WholeRun run(
      2,
      [&](const World& world) {
        Script script;
        script.run = [&aborted, world](const Step&) {
          if (world.process == 1) aborted.Wait();
          return TimedAs(world, 5);
        };
        script.abort = [&aborted] { aborted.Set(); };
        return script;
      },
      settings);
  run.Hello();
  run.Send(MeasureLine(R"(,"timeout_s":0.1)"));
  const json::Value point = run.Receive();
  EXPECT_EQ(ErrorKindOf(point), "timeout");
  EXPECT_EQ(*point.Find("error")->Find("text")->AsString(),
            "allreduce of 1024 bytes with NCCL's default is stuck: process 1 gave no answer within "
            "0.2 s");
  EXPECT_EQ(run.Finish(), 4);
}

TEST(Conductor, AFatalTableEndsTheRun) {
  WholeRun run(2, [](const World& world) {
    Script script;
    script.table = [world](const Step&) {
      TableResult result;
      if (world.process == 1) result.error = StepError{ErrorKind::kNccl, "broken", 1, true};
      return result;
    };
    return script;
  });
  run.Hello();
  run.Send(R"({"op":"table","id":4,"collective":"allreduce","bytes":[8,16]})");
  EXPECT_EQ(run.ReceiveText(),
            R"({"op":"table","id":4,"rows":[{"bytes":8,"error":{"kind":"nccl","text":"broken",)"
            R"("rank":1}}]})");
  EXPECT_TRUE(run.Receive().IsNull());
  EXPECT_EQ(run.Finish(), 4);
}

// The death of any process, in a step and between two requests.
class DeathTest : public ::testing::TestWithParam<int> {};

TEST_P(DeathTest, DuringAStepIsReportedInThePoint) {
  Latch aborted;
  std::atomic<int> begun = 0;
  WholeRun run(3, [&](const World&) {
    Script script;
    script.run = [&](const Step&) {
      ++begun;
      aborted.Wait();
      return StepResult();
    };
    script.abort = [&aborted] { aborted.Set(); };
    return script;
  });
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
  WholeRun run(2, [&](const World&) {
    Script script;
    script.run = [&](const Step&) {
      ++begun;
      aborted.Wait();
      return StepResult();
    };
    script.abort = [&aborted] { aborted.Set(); };
    return script;
  });
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
    Script script;
    script.run = [&steps, world](const Step&) {
      ++steps;
      return TimedAs(world, 5);
    };
    return script;
  });
  run.Hello();
  run.Send(MeasureLine(R"(,"rounds":3000)"));
  // The output fills the pipe's buffer and our own queue; then no new step starts.
  int seen = -1;
  ASSERT_TRUE(Eventually([&] {
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

}  // namespace
}  // namespace nccltune::bench
