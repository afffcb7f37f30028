// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/gate.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

struct Sides {
  GateMemory memory;
  std::array<Gate, 2> gates = {Gate(memory, Role::kSender), Gate(memory, Role::kReceiver)};
};

TEST(Gate, AWordKeepsWhatItIsMadeOf) {
  for (const int64_t lead : {int64_t{0}, int64_t{-1}, int64_t{5}, int64_t{1} << 46}) {
    for (uint32_t bits = 0; bits < 32; ++bits) {
      const GateState state = {.period = 2047 - bits,
                               .entered = {(bits & 1) != 0, (bits & 2) != 0},
                               .opened = (bits & 4) != 0,
                               .closed = (bits & 8) != 0,
                               .unusable = (bits & 16) != 0,
                               .lead = lead};
      const GateState again = GateState::Of(state.Packed());
      EXPECT_EQ(again.Packed(), state.Packed());
      EXPECT_EQ(again.period, state.period);
      EXPECT_EQ(again.entered, state.entered);
      EXPECT_EQ(again.opened, state.opened);
      EXPECT_EQ(again.closed, state.closed);
      EXPECT_EQ(again.unusable, state.unusable);
      EXPECT_EQ(again.lead, lead);
    }
  }
}

TEST(Gate, OpensWhenBothHavePassedAMessage) {
  Sides sides;
  EXPECT_EQ(sides.gates[0].Pass(true, 0), Gate::Step::kNative);
  EXPECT_EQ(sides.gates[0].Pass(true, 9), Gate::Step::kNative) << "the peer has passed none";
  EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative) << "NCCL has it at the peer";
  EXPECT_EQ(sides.gates[0].Pass(false, 9), Gate::Step::kNative) << "it may not be opened";
  EXPECT_EQ(sides.gates[0].Pass(true, 1), Gate::Step::kNative) << "too far ahead";
  EXPECT_EQ(sides.gates[0].Pass(true, 3), Gate::Step::kOpen);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative);
  EXPECT_EQ(sides.gates[1].Pass(false, 0), Gate::Step::kOpen) << "as the peer has decided";
  EXPECT_EQ(sides.gates[0].mark(), sides.gates[1].mark());
}

TEST(Gate, ClosesForBothAndReportsWhy) {
  for (const bool unusable : {false, true}) {
    Sides sides;
    EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kNative);
    EXPECT_TRUE(sides.gates[0].CloseForGood(unusable));
    EXPECT_EQ(sides.gates[1].Pass(true, 9), Gate::Step::kClosed);
    EXPECT_EQ(sides.gates[1].is_unusable(), unusable);
    EXPECT_FALSE(sides.gates[1].has_opened());
    EXPECT_TRUE(sides.gates[1].CloseForGood());
  }
}

// Two sides call in a random order. They open the gate when they may, and shut it at messages that
// both know, as with a full ring. Each message must have a slot on both sides or on neither.
TEST(Gate, BothSidesAgreeOnEachMessage) {
  size_t opened = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    Sides sides;
    std::array<std::string, 2> seen;
    // For each period: how many messages after opening the gate is shut again.
    std::vector<uint32_t> shut(100);
    for (uint32_t& each : shut) each = 1 + below(6);
    std::array<size_t, 2> periods = {};
    std::array<uint32_t, 2> open = {};
    const uint32_t bias = below(10);
    for (int i = 0; i < 120; ++i) {
      size_t side = below(10) < bias ? 0 : 1;
      if (seen[side].size() == 60) side = 1 - side;
      Gate& gate = sides.gates[side];
      if (open[side] == 0) {
        const Gate::Step step = gate.Pass(below(3) != 0, below(20));
        ASSERT_NE(step, Gate::Step::kClosed);
        if (step == Gate::Step::kNative) {
          seen[side] += 'n';
          continue;
        }
        open[side] = shut[periods[side]++];
        ++opened;
      }
      seen[side] += 's';
      if (--open[side] == 0) gate.Shut();
    }
    ASSERT_EQ(seen[0], seen[1]) << seed;
  }
  EXPECT_GT(opened, 3000U);
}

// The same with two threads.
TEST(Gate, BothSidesAgreeWhenTheyComeAtOnce) {
  constexpr size_t kMessages = 50'000;
  Sides sides;
  std::array<std::vector<bool>, 2> seen;
  const auto run = [&](size_t side) {
    Gate& gate = sides.gates[side];
    size_t open = 0;
    for (size_t i = 0; i < kMessages; ++i) {
      if (i % 61 == 30 * side) std::this_thread::yield();
      if (open == 0 && gate.Pass(i % 3 != 0, 50) == Gate::Step::kOpen) open = 5;
      seen[side].push_back(open > 0);
      if (open > 0 && --open == 0) gate.Shut();
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace nccltune::sendrecv
