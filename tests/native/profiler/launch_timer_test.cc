// SPDX-License-Identifier: Apache-2.0
//
// Times of kernels: the shipped shared object, played by what NCCL does, on a stand-in of CUDA.
#include "profiler/launch_timer.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "events_double.h"
#include "log_line.h"
#include "recorded.h"
#include "testing.h"

namespace nccltune::profiler {
namespace {

GpuDouble* LoadGpu() {
  void* const library = dlopen(EVENTS_DOUBLE, RTLD_NOW | RTLD_GLOBAL);
  return reinterpret_cast<GpuDouble* (*)()>(dlsym(library, "the_gpu_double"))();
}

// "AllReduce 4096 TIMED NS LEAST MOST BINS" of each row of tasks with times.
std::vector<std::string> TimesOf(const json::Value& file) {
  std::vector<std::string> found;
  for (const json::Value& communicator : *file.Find("communicators")->AsArray()) {
    for (const char* const list : {"calls", "tasks"}) {
      for (const json::Value& row : *communicator.Find(list)->AsArray()) {
        const json::Value* const timed = row.Find("timed");
        if (timed == nullptr) continue;
        int64_t number = 0;
        std::string bins;
        for (const json::Value& bin : *timed->Find("bins")->AsArray()) {
          number += *bin.AsArray()->at(1).AsInt();
          bins += " " + std::to_string(*bin.AsArray()->at(0).AsInt());
        }
        found.push_back(*row.Find("function")->AsString() + " " +
                        std::to_string(Int(row, "bytes")) + ": " + std::to_string(number) + " of " +
                        std::to_string(Int(row, "count")) + ", " +
                        std::to_string(Int(*timed, "total_ns")) + " ns, " +
                        std::to_string(Int(*timed, "least_ns")) + " to " +
                        std::to_string(Int(*timed, "most_ns")) + ", bins" + bins);
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}
using Times = std::vector<std::string>;

template <typename Profiler>
class Timed : public Recorded {
 protected:
  using Communicator = PlayedCommunicator<Profiler>;

  // Plays in a child; fails if events remain, or if a capture would have ended.
  int Play(const char* one_in, const std::function<void(Communicator*, GpuDouble*)>& body) {
    variables_.Set("NCCLTUNE_RECORD_TIMES", one_in);
    return InChild([&] {
      GpuDouble* const gpu = LoadGpu();
      {
        Communicator communicator(PROFILER_PLUGIN, "all", 8, 3);
        body(&communicator, gpu);
        gpu->is_behind = false;
      }
      if (gpu->mode != 0) return 3;
      return gpu->events != 0 ? 1 : gpu->forbidden != 0 ? 2 : 0;
    });
  }
};
using WithLaunches = testing::Types<abi::ProfilerV5, abi::ProfilerV6, abi::ProfilerV7>;
TYPED_TEST_SUITE(Timed, WithLaunches);

auto Running(GpuDouble* gpu, int64_t ns) {
  return [gpu, ns] { gpu->now_ns += ns; };
}

TYPED_TEST(Timed, EachKernelIsTimedAndNothingElse) {
  ASSERT_EQ(
      this->Play("1",
                 [](auto* communicator, GpuDouble* gpu) {
                   for (int64_t us = 1; us <= 3; ++us) {
                     communicator->Play({.count = 1024}, Running(gpu, 10'000 * us));
                     gpu->now_ns += 1'000'000;  // between the kernels
                     communicator->Play({.function = "AllGather", .count = 512}, Running(gpu, 400));
                   }
                   const auto longer = Running(gpu, 9'000'000);
                   communicator->Play({.count = 1024, .captured = true, .replays = 2}, longer);
                   for (const auto run : {ProgramCall::kCopyEngine, ProgramCall::kUnreported}) {
                     communicator->Play({.count = 1024, .run = run}, longer);
                   }
                   communicator->Play({.function = "Recv", .count = 8}, Running(gpu, 2048));
                 }),
      0);
  const json::Value file = this->OnlyFile();
  // A replay of a graph is counted, but not timed.
  EXPECT_EQ(TimesOf(file), (Times{"AllGather 2048: 3 of 3, 1200 ns, 400 to 400, bins 0",
                                  "AllReduce 4096: 3 of 5, 60000 ns, 10000 to 30000, bins 16 20 23",
                                  "Recv 32: 1 of 1, 2048 ns, 2048 to 2048, bins 8"}));
  EXPECT_EQ(Int(file, "timed_one_in"), 1);
  EXPECT_EQ(file.Find("untimed"), nullptr);
}

TYPED_TEST(Timed, TasksOfOneKernelShareItsTimeByBytes) {
  ASSERT_EQ(this->Play("1",
                       [](auto* communicator, GpuDouble* gpu) {
                         communicator->PlayTogether({{.function = "Send", .count = 300},
                                                     {.function = "Recv", .count = 100},
                                                     {.function = "Recv", .count = 100}},
                                                    Running(gpu, 50'000));
                         // Empty messages, and more tasks than are followed.
                         communicator->PlayTogether({{.function = "Send"}, {.function = "Recv"}},
                                                    Running(gpu, 8'000));
                         communicator->PlayTogether(
                             std::vector<ProgramCall>(65, {.function = "Send", .count = 7}),
                             Running(gpu, 1000));
                       }),
            0);
  EXPECT_EQ(TimesOf(this->OnlyFile()),
            (Times{"Recv 0: 1 of 1, 4000 ns, 4000 to 4000, bins 11",
                   "Recv 400: 2 of 2, 20000 ns, 10000 to 10000, bins 16",
                   "Send 0: 1 of 1, 4000 ns, 4000 to 4000, bins 11",
                   "Send 1200: 1 of 1, 30000 ns, 30000 to 30000, bins 23"}));
}

// A job repeats its calls, so that a fixed step would time the same ones again and again.
TYPED_TEST(Timed, OneInNOfAllCallsOfAPeriod) {
  constexpr int kPeriod = 8;
  constexpr int kRounds = 4000;
  ASSERT_EQ(this->Play("8",
                       [](auto* communicator, GpuDouble* gpu) {
                         for (int i = 0; i < kPeriod * kRounds; ++i) {
                           communicator->Play({.count = size_t(1 + i % kPeriod)},
                                              Running(gpu, 1000));
                         }
                       }),
            0);
  const Times times = TimesOf(this->OnlyFile());
  ASSERT_EQ(times.size(), size_t{kPeriod});
  for (const std::string& row : times) {
    const int number = std::stoi(row.substr(row.find(": ") + 2));
    EXPECT_NEAR(number, kRounds / 8, 100) << row;
  }
}

TYPED_TEST(Timed, WhatHasNoCertainTimeIsLeftOut) {
  ASSERT_EQ(this->Play("1",
                       [](auto* communicator, GpuDouble* gpu) {
                         const ProgramCall call = {.count = 1};
                         gpu->is_behind = true;  // 16 kernels wait, the others are not timed
                         for (int i = 0; i < 40; ++i) communicator->Play(call, Running(gpu, 1000));
                         gpu->is_behind = false;
                         // A launch that does not end, and one that is captured after all.
                         communicator->PlayLaunch(call, [] {}, /*stops=*/false);
                         gpu->capture_status = 1;
                         const int records = gpu->records;
                         communicator->Play(call, Running(gpu, 5'000'000));
                         if (gpu->records != records) std::_Exit(9);
                         gpu->capture_status = 0;
                         // Its tasks come from a thread of the driver, as after a graph.
                         communicator->PlayLaunch(call, Running(gpu, 7'000'000));
                         std::thread([&] { communicator->PlayTasks(call); }).join();
                         communicator->Play(call, Running(gpu, 3000));
                       }),
            0);
  EXPECT_EQ(TimesOf(this->OnlyFile()),
            (Times{"AllReduce 4: 17 of 43, 19000 ns, 1000 to 3000, bins 3 9"}));
}

TYPED_TEST(Timed, FilesSayWhyThereAreNoTimes) {
  struct Case {
    std::function<void(GpuDouble*)> prepare;
    std::string why;
  };
  const std::string not_tried = "times were not tried with NCCL ";
  const std::vector<Case> cases = {
      {[](GpuDouble* gpu) { gpu->nccl_version = 22707; }, not_tried + "2.27.7"},
      {[](GpuDouble* gpu) { gpu->nccl_version = 23300; }, not_tried + "2.33.0"},
      {[](GpuDouble*) { setenv("NCCLTUNE_RECORD_NEXT", "other", 1); },
       "NCCLTUNE_RECORD_NEXT names another profiler"},
  };
  this->variables_.Set("NCCLTUNE_RECORD_TIMES", "1");
  for (const Case& item : cases) {
    fs::remove_all(this->records());
    ASSERT_EQ(this->InChild([&item] {
      GpuDouble* const gpu = LoadGpu();
      item.prepare(gpu);
      typename TestFixture::Communicator communicator(PROFILER_PLUGIN, "all", 2, 0, &KeepLine);
      communicator.Play({.count = 1}, Running(gpu, 1000));
      const bool asked = (static_cast<unsigned>(nccls_mask) & abi::kProfileKernelLaunch) != 0;
      std::string lines;
      for (const std::string& line : TakeLines()) lines += line;
      return asked || lines.find(item.why) == std::string::npos ? 1 : gpu->events;
    }),
              0)
        << item.why;
    EXPECT_EQ(*this->OnlyFile().Find("untimed")->AsString(), item.why);
    EXPECT_TRUE(TimesOf(this->OnlyFile()).empty());
  }
  // Ranks of one communicator: what was timed before stays.
  fs::remove_all(this->records());
  ASSERT_EQ(this->Play("1",
                       [](auto* communicator, GpuDouble* gpu) {
                         communicator->Play({.count = 1}, Running(gpu, 1000));
                         typename TestFixture::Communicator second(PROFILER_PLUGIN, "all", 8, 4);
                         communicator->Play({.count = 1}, Running(gpu, 1000));
                         second.Play({.count = 1}, Running(gpu, 1000));
                       }),
            0);
  EXPECT_EQ(*this->OnlyFile().Find("untimed")->AsString(),
            "a communicator has several ranks in this process");
  EXPECT_EQ(TimesOf(this->OnlyFile()), Times{"AllReduce 4: 1 of 2, 1000 ns, 1000 to 1000, bins 3"});
}

TYPED_TEST(Timed, TimesOfEndedCommunicatorsAddUp) {
  ASSERT_EQ(this->Play("1",
                       [](auto* communicator, GpuDouble* gpu) {
                         communicator->Play({.count = 1}, Running(gpu, 1000));
                         for (int i = 1; i < 3; ++i) {
                           typename TestFixture::Communicator later(PROFILER_PLUGIN, "all", 8, 3);
                           later.Play({.count = 1}, Running(gpu, 1000 * i));
                         }
                       }),
            0);
  EXPECT_EQ(TimesOf(this->OnlyFile()),
            Times{"AllReduce 4: 3 of 3, 4000 ns, 1000 to 2000, bins 3 7"});
}

TEST(Durations, BinsHaveFourBeginningsInEachPowerOfTwo) {
  for (size_t bin = 1; bin < Durations::kBins; ++bin) {
    const uint64_t begin = (4 + bin % 4) << (bin / 4 + 7);
    EXPECT_EQ(Durations::BinOf(begin), bin);
    EXPECT_EQ(Durations::BinOf(begin - 1), bin - 1);
  }
  EXPECT_EQ(Durations::BinOf(0), 0U);
  EXPECT_EQ(Durations::BinOf(~uint64_t{0}), Durations::kBins - 1);
}

}  // namespace
}  // namespace nccltune::profiler
