// SPDX-License-Identifier: Apache-2.0
//
// Times of kernels: the shipped shared object, played by what NCCL does, on a stand-in of CUDA.
#include "profiler/launch_timer.h"

#include "events_double.h"
#include "recorded.h"
#include "testing.h"

namespace nccltune::profiler {
namespace {

// "AllReduce 4096: TIMED of COUNT, NS ns, bins BIN ..." of each row with times.
using Times = std::vector<std::string>;

Times TimesOf(const json::Value& file) {
  Times found;
  for (const json::Value& communicator : *file.Find("communicators")->AsArray()) {
    for (const json::Value& row : *communicator.Find("tasks")->AsArray()) {
      const json::Value* const timed = row.Find("timed");
      if (timed == nullptr) continue;
      int64_t number = 0;
      std::string bins;
      for (const json::Value& bin : *timed->Find("bins")->AsArray()) {
        number += *bin.AsArray()->at(1).AsInt();
        bins += " " + std::to_string(*bin.AsArray()->at(0).AsInt());
      }
      found.push_back(*row.Find("function")->AsString() + " " + std::to_string(Int(row, "bytes")) +
                      ": " + std::to_string(number) + " of " + std::to_string(Int(row, "count")) +
                      ", " + std::to_string(Int(*timed, "total_ns")) + " ns, bins" + bins);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

template <typename Profiler>
class Timed : public Recorded {
 protected:
  using Communicator = PlayedCommunicator<Profiler>;
  using Body = std::function<void(Communicator*, GpuDouble*)>;

  // Plays in a child and returns its file. No event may remain, and no capture may have ended.
  json::Value Play(
      const char* one_in, const Body& body, const Body& prepare = [](auto*, auto*) {}) {
    variables_.Set("NCCLTUNE_RECORD_TIMES", one_in);
    fs::remove_all(records());
    EXPECT_EQ(InChild([&] {
                void* const library = dlopen(EVENTS_DOUBLE, RTLD_NOW | RTLD_GLOBAL);
                auto* const gpu = static_cast<GpuDouble*>(dlsym(library, "the_gpu_double"));
                prepare(nullptr, gpu);
                {
                  Communicator communicator(PROFILER_PLUGIN, "all", 8, 3);
                  body(&communicator, gpu);
                  gpu->is_behind = false;
                }
                return gpu->mode + gpu->events + gpu->forbidden;
              }),
              0);
    return OnlyFile();
  }
};
using WithLaunches = testing::Types<abi::Profiler<5>, abi::Profiler<6>, abi::Profiler<7>>;
TYPED_TEST_SUITE(Timed, WithLaunches);

auto Running(GpuDouble* gpu, int64_t ns) {
  return [gpu, ns] { gpu->now_ns += ns; };
}

TYPED_TEST(Timed, EachKernelIsTimedAndNothingElse) {
  const json::Value file = this->Play("1", [](auto* nccl, GpuDouble* gpu) {
    for (int64_t us = 1; us <= 3; ++us) {
      nccl->Play({.count = 1024}, Running(gpu, 10'000 * us));
      gpu->now_ns += 1'000'000;  // between the kernels
      nccl->Play({.function = "AllGather", .count = 512}, Running(gpu, 400));
    }
    nccl->Play({.count = 1024, .captured = true, .replays = 2}, Running(gpu, 9'000'000));
    for (const auto run : {ProgramCall::kCopyEngine, ProgramCall::kUnreported}) {
      nccl->Play({.count = 1024, .run = run}, Running(gpu, 9'000'000));
    }
    nccl->Play({.function = "Recv", .count = 8}, Running(gpu, 2048));
  });
  // A replay of a graph is counted, but not timed.
  EXPECT_EQ(TimesOf(file), (Times{"AllGather 2048: 3 of 3, 1200 ns, bins 0",
                                  "AllReduce 4096: 3 of 5, 60000 ns, bins 16 20 23",
                                  "Recv 32: 1 of 1, 2048 ns, bins 8"}));
  EXPECT_EQ(Int(file, "timed_one_in"), 1);
  EXPECT_EQ(file.Find("untimed"), nullptr);
}

TYPED_TEST(Timed, TasksOfOneKernelShareItsTimeByBytes) {
  const json::Value file = this->Play("1", [](auto* nccl, GpuDouble* gpu) {
    const ProgramCall recv = {.function = "Recv", .count = 100};
    nccl->PlayTogether({{.function = "Send", .count = 300}, recv, recv}, Running(gpu, 50'000));
    nccl->PlayTogether({{.function = "Send"}, {.function = "Recv"}}, Running(gpu, 8'000));
    // More tasks than are followed.
    nccl->PlayTogether(std::vector<ProgramCall>(65, recv), Running(gpu, 1000));
  });
  EXPECT_EQ(TimesOf(file),
            (Times{"Recv 0: 1 of 1, 4000 ns, bins 11", "Recv 400: 2 of 67, 20000 ns, bins 16",
                   "Send 0: 1 of 1, 4000 ns, bins 11", "Send 1200: 1 of 1, 30000 ns, bins 23"}));
}

// A job repeats its calls, so that a fixed step would time the same ones again and again.
TYPED_TEST(Timed, OneInNOfAllCallsOfAPeriod) {
  constexpr int kPeriod = 8;
  constexpr int kRounds = 4000;
  const Times times = TimesOf(this->Play("8", [](auto* nccl, GpuDouble* gpu) {
    for (size_t i = 0; i < size_t{kPeriod} * kRounds; ++i) {
      nccl->Play({.count = 1 + i % kPeriod}, Running(gpu, 1000));
    }
  }));
  ASSERT_EQ(times.size(), size_t{kPeriod});
  for (const std::string& row : times) {
    EXPECT_NEAR(std::stoi(row.substr(row.find(": ") + 2)), kRounds / 8, 100) << row;
  }
}

TYPED_TEST(Timed, WhatHasNoCertainTimeIsLeftOut) {
  const json::Value file = this->Play("1", [](auto* nccl, GpuDouble* gpu) {
    const ProgramCall call = {.count = 1};
    gpu->is_behind = true;  // 16 kernels wait, the others are not timed
    for (int i = 0; i < 40; ++i) nccl->Play(call, Running(gpu, 1000));
    gpu->is_behind = false;
    // A launch that does not end, and one that is captured after all.
    nccl->PlayLaunch(call, [] {}, /*stops=*/false);
    gpu->capture_status = 1;
    const int records = gpu->records;
    nccl->Play(call, Running(gpu, 5'000'000));
    if (gpu->records != records) std::_Exit(9);
    gpu->capture_status = 0;
    // Its tasks come from a thread of the driver, as after a graph.
    nccl->PlayLaunch(call, Running(gpu, 7'000'000));
    std::thread([&] { nccl->PlayTasks(call); }).join();
    nccl->Play(call, Running(gpu, 3000));
  });
  EXPECT_EQ(TimesOf(file), Times{"AllReduce 4: 17 of 43, 19000 ns, bins 3 9"});
}

TYPED_TEST(Timed, FilesSayWhyThereAreNoTimes) {
  const std::string not_tried = "times were not tried with NCCL ";
  const std::map<std::string, std::function<void(GpuDouble*)>> cases = {
      {not_tried + "2.27.7", [](GpuDouble* gpu) { gpu->nccl_version = 22707; }},
      {not_tried + "2.33.0", [](GpuDouble* gpu) { gpu->nccl_version = 23300; }},
      {"NCCLTUNE_RECORD_NEXT names another profiler",
       [](GpuDouble*) { setenv("NCCLTUNE_RECORD_NEXT", "other", 1); }},
  };
  for (const auto& item : cases) {
    const auto play = [](auto* nccl, GpuDouble* gpu) {
      nccl->Play({.count = 1}, Running(gpu, 1000));
      const auto mask = static_cast<unsigned>(nccls_mask);
      if (gpu->events != 0 || (mask & abi::kProfileKernelLaunch) != 0) std::_Exit(9);
    };
    const json::Value file = this->Play("1", play, [&](auto*, auto* gpu) { item.second(gpu); });
    EXPECT_EQ(*file.Find("untimed")->AsString(), item.first);
    EXPECT_TRUE(TimesOf(file).empty());
  }
  const json::Value no_events = this->Play(
      "1", [](auto* nccl, GpuDouble* gpu) { nccl->Play({.count = 1}, Running(gpu, 1000)); },
      [](auto*, GpuDouble* gpu) { gpu->most_events = gpu->events + 5; });
  EXPECT_EQ(*no_events.Find("untimed")->AsString(), "CUDA has no further events");
  EXPECT_TRUE(TimesOf(no_events).empty());
  // Ranks of one communicator in one process: what was timed before stays.
  const json::Value file = this->Play("1", [](auto* nccl, GpuDouble* gpu) {
    nccl->Play({.count = 1}, Running(gpu, 1000));
    typename TestFixture::Communicator second(PROFILER_PLUGIN, "all", 8, 4);
    nccl->Play({.count = 1}, Running(gpu, 1000));
  });
  EXPECT_EQ(*file.Find("untimed")->AsString(), "a communicator has several ranks in this process");
  EXPECT_EQ(TimesOf(file), Times{"AllReduce 4: 1 of 2, 1000 ns, bins 3"});
}

TYPED_TEST(Timed, TimesOfEndedCommunicatorsAddUp) {
  const json::Value file = this->Play("1", [](auto* nccl, GpuDouble* gpu) {
    nccl->Play({.count = 1}, Running(gpu, 1000));
    for (int i = 1; i < 3; ++i) {
      typename TestFixture::Communicator later(PROFILER_PLUGIN, "all", 8, 3);
      later.Play({.count = 1}, Running(gpu, 1000 * i));
    }
  });
  EXPECT_EQ(TimesOf(file), Times{"AllReduce 4: 3 of 3, 4000 ns, bins 3 7"});
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
