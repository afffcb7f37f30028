// SPDX-License-Identifier: Apache-2.0
//
// Many threads ask for decisions while another one changes the orders; most useful with the thread
// sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "abi/tuner_types.h"
#include "tuner/control.h"
#include "tuner/support.h"

namespace nccltune::tuner {
namespace {

TEST(Concurrency, ACallSeesAWholeOrderOrNone) {
  const ScopedFile file("allreduce,0,9999,ring,ll,4,-1,-1,-1,-1,8192\n");
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  const TestTuner tuner(6, {4, 32});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([&] {
      Call call;
      call.collective = abi::kAllReduce;
      call.bytes = 5;
      while (!stop) {
        const Answer answer = tuner.Ask(call);
        const Pair chosen = Chosen(answer, 6);
        const bool rule = chosen == Pair{abi::kRing, abi::kLl} && answer.channels == 4;
        const bool one = chosen == Pair{abi::kTree, abi::kSimple} && answer.channels == 8;
        const bool other = chosen == Pair{abi::kPat, abi::kLl128} && answer.channels == 16;
        if (!rule && !one && !other) ++wrong;
        const size_t chunk = tuner.AskChunk(abi::kAllReduce, abi::kTree, abi::kSimple, 512);
        if (chunk != 512 && chunk != 4096) ++wrong;
        const size_t by_rule = tuner.AskChunk(abi::kAllReduce, abi::kRing, abi::kLl, 512);
        if (by_rule != 512 && by_rule != 8192) ++wrong;
      }
    });
  }
  nccltune_tuner_decision decision{};
  nccltune_tuner_table table{};
  // Continue until the callers have made enough calls.
  for (int i = 0; i < 2000 || decision.sequence < 100; ++i) {
    nccltune_tuner_force(abi::kAllReduce, abi::kTree, abi::kSimple, 8, 4096);
    nccltune_tuner_record(i % 2);
    nccltune_tuner_force(NCCLTUNE_TUNER_ALL, abi::kPat, abi::kLl128, 16, 0);
    nccltune_tuner_last_decision(abi::kAllReduce, &decision);
    nccltune_tuner_last_table(abi::kAllReduce, 5, &table);
    nccltune_tuner_release(NCCLTUNE_TUNER_ALL);
    if (i % 100 == 0) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  nccltune_tuner_record(0);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nccltune::tuner
