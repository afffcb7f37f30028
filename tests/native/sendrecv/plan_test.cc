// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/plan.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace nccltune::sendrecv {
namespace {

struct Flags {
  Flag ready = 0;
  Flag done = 0;
};

class PlanTest : public testing::Test {
 protected:
  Part Of(Part::Kind kind, size_t lane, size_t message) {
    return {.kind = kind,
            .lane = lane,
            .ready = &flags_[message].ready,
            .done = &flags_[message].done,
            .value = static_cast<uint32_t>(message),
            .to = 1000 + message,
            .from = 2000 + message,
            .staging = 3000 + message,
            .before = {},
            .bytes = 1,
            .chunks = {}};
  }

  // `0:=ready1 1:after0 ...`: stream, operation, message.
  static std::string Words(const std::vector<Operation>& operations, const PlanTest& test) {
    std::string words;
    for (const Operation& each : operations) {
      words += (words.empty() ? "" : " ") + std::to_string(each.stream) + ":";
      switch (each.kind) {
        case Operation::Kind::kFork:
          words += "after" + std::to_string(each.other);
          break;
        case Operation::Kind::kMark:
          words += "mark";
          break;
        case Operation::Kind::kJoin:
          words += "join";
          break;
        case Operation::Kind::kWrite:
          words += "=" + test.Name(each.flag);
          break;
        case Operation::Kind::kWait:
          words += "?" + test.Name(each.flag);
          break;
        case Operation::Kind::kCopy:
          words += "copy" + std::to_string(each.from) + ">" + std::to_string(each.to);
          break;
      }
    }
    return words;
  }

  std::string Name(const Flag* flag) const {
    for (size_t i = 0; i < flags_.size(); ++i) {
      if (flag == &flags_[i].ready) return "ready" + std::to_string(i);
      if (flag == &flags_[i].done) return "done" + std::to_string(i);
    }
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (flag == &channels_[i].filled) return "filled" + std::to_string(i);
      if (flag == &channels_[i].emptied) return "emptied" + std::to_string(i);
    }
    return "none";
  }

  // Two channels, three chunks, two slots.
  Part Through(Part::Kind kind) {
    Part part = Of(kind, 0, 1);
    part.chunks = {{.channel = 0, .number = 7, .at = 500, .offset = 0, .bytes = 9},
                   {.channel = 0, .number = 8, .at = 600, .offset = 9, .bytes = 9},
                   {.channel = 1, .number = 2, .at = 700, .offset = 18, .bytes = 4}};
    part.channels = channels_.data();
    part.steps = 2;
    return part;
  }

  std::string Before(const std::vector<Part>& parts, bool native = false) {
    return Words(MakePlan(parts, native).before, *this);
  }
  std::string After(const std::vector<Part>& parts, bool native = false) {
    return Words(MakePlan(parts, native).after, *this);
  }

  std::array<Flags, 6> flags_;
  std::array<LaneMemory::Channel, 2> channels_;
};

TEST_F(PlanTest, OneReceive) {
  const std::vector<Part> parts = {Of(Part::Kind::kAwait, 0, 1)};
  EXPECT_EQ(Before(parts), "0:=ready1");
  EXPECT_EQ(After(parts), "0:?done1");
}

TEST_F(PlanTest, ARingNeedsNoOtherStream) {
  const std::vector<Part> parts = {Of(Part::Kind::kCopy, 0, 1), Of(Part::Kind::kAwait, 1, 2)};
  EXPECT_EQ(Before(parts), "0:=ready2 0:?ready1 0:copy2001>1001 0:=done1");
  EXPECT_EQ(After(parts), "0:?done2");
  EXPECT_EQ(MakePlan(parts, false).streams.size(), 1U);
}

TEST_F(PlanTest, WhoIsReadyIsNotWaitedFor) {
  Part part = Of(Part::Kind::kCopy, 0, 1);
  part.there = true;
  EXPECT_EQ(Before({part}), "0:copy2001>1001 0:=done1");
}

TEST_F(PlanTest, OfAGraphWhoWaitsForAFlagResetsIt) {
  std::vector<Part> parts = {Of(Part::Kind::kCopy, 0, 1), Of(Part::Kind::kAwait, 1, 2)};
  for (Part& part : parts) part.again = true;
  EXPECT_EQ(Before(parts), "0:=ready2 0:?ready1 0:=ready1 0:copy2001>1001 0:=done1");
  EXPECT_EQ(After(parts), "0:?done2 0:=done2");
  EXPECT_EQ(MakePlan(parts, false).before[2].value, 0U);
  EXPECT_TRUE(MakePlan(parts, true).streams.back() ==
              (PlanStream{.lane = 0, .kind = PlanStream::kOfGraph}));
}

TEST_F(PlanTest, EachLaneThatCopiesHasItsStream) {
  const std::vector<Part> parts = {Of(Part::Kind::kCopy, 4, 1), Of(Part::Kind::kCopy, 2, 2),
                                   Of(Part::Kind::kCopy, 4, 3), Of(Part::Kind::kAwait, 1, 4)};
  EXPECT_EQ(Before(parts),
            "0:=ready4 1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark "
            "2:after0 2:?ready2 2:copy2002>1002 2:=done2 2:mark "
            "1:?ready3 1:copy2003>1003 1:=done3 1:mark");
  EXPECT_EQ(After(parts), "1:join 2:join 0:?done4");
  const std::vector<PlanStream> streams = {
      {}, {.lane = 4, .kind = PlanStream::kToPeer}, {.lane = 2, .kind = PlanStream::kToPeer}};
  EXPECT_TRUE(MakePlan(parts, false).streams == streams);
}

TEST_F(PlanTest, BesideNcclACopyHasAStreamOfItsOwn) {
  const std::vector<Part> parts = {Of(Part::Kind::kCopy, 0, 1)};
  EXPECT_EQ(Before(parts, true), "1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark");
  EXPECT_EQ(After(parts, true), "1:join");
}

TEST_F(PlanTest, OfWhatIsStagedOnlyTheStagingIsWaitedFor) {
  const std::vector<Part> parts = {Of(Part::Kind::kStaged, 0, 1)};
  EXPECT_EQ(Before(parts),
            "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 2:=done1");
  EXPECT_EQ(After(parts), "1:join");
}

TEST_F(PlanTest, WhatIsStagedWaitsForItsPlace) {
  Part part = Of(Part::Kind::kStaged, 0, 1);
  part.before = {{&flags_[3].done, 3}, {&flags_[4].done, 4}};
  EXPECT_EQ(Before({part}),
            "1:after0 1:?done3 1:?done4 1:copy2001>3001 1:mark "
            "2:after1 2:?ready1 2:copy3001>1001 2:=done1");
}

TEST_F(PlanTest, WhatIsLeftForThePeerIsToldOfBehindItsCopy) {
  Part part = Of(Part::Kind::kLeft, 0, 1);
  part.before = {{&flags_[3].done, 3}};
  EXPECT_EQ(Before({part}), "1:after0 1:?done3 1:copy2001>3001 1:=ready1 1:mark");
  EXPECT_EQ(After({part}), "1:join");
}

TEST_F(PlanTest, ASendBehindAStagedOneIsWaitedForInItsOrder) {
  const std::vector<Part> parts = {Of(Part::Kind::kStaged, 0, 1), Of(Part::Kind::kCopy, 0, 2)};
  EXPECT_EQ(Before(parts),
            "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 2:=done1 "
            "2:?ready2 2:copy2002>1002 2:=done2 2:mark");
  EXPECT_EQ(After(parts), "1:join 2:join");
}

// Its receive may come long after the group's.
TEST_F(PlanTest, AStagedSendBehindAnotherIsNotWaitedFor) {
  const std::vector<Part> parts = {Of(Part::Kind::kCopy, 0, 1), Of(Part::Kind::kStaged, 0, 2)};
  EXPECT_EQ(Before(parts),
            "1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark 2:after0 2:copy2002>3002 2:mark "
            "1:after2 1:?ready2 1:copy3002>1002 1:=done2");
  EXPECT_EQ(After(parts), "1:join 2:join");
}

// The second slot of channel 1 was never taken before.
TEST_F(PlanTest, SlotsAreFilledWhenTheyAreEmptied) {
  const std::vector<Part> parts = {Through(Part::Kind::kFill)};
  EXPECT_EQ(Before(parts),
            "1:after0 1:?emptied0 1:copy2001>500 1:=filled0 1:?emptied0 1:copy2010>600 1:=filled0 "
            "1:mark 2:after0 2:copy2019>700 2:=filled1 2:mark");
  EXPECT_EQ(After(parts), "1:join 2:join");
  const Plan plan = MakePlan(parts, false);
  EXPECT_EQ(plan.before[1].value, 5U);
  EXPECT_EQ(plan.before[3].value, 7U);
}

TEST_F(PlanTest, AMessageIsOverWhenItsSlotsAreEmptied) {
  const std::vector<Part> parts = {Through(Part::Kind::kEmpty)};
  EXPECT_EQ(Before(parts),
            "1:after0 1:?filled0 1:copy500>1001 1:=emptied0 1:?filled0 1:copy600>1010 1:=emptied0 "
            "1:mark 2:after0 2:?filled1 2:copy700>1019 2:=emptied1 2:mark");
  EXPECT_EQ(After(parts), "1:join 2:join 0:=done1");
}

TEST_F(PlanTest, ACopyInPieces) {
  Part part = Of(Part::Kind::kCopy, 0, 1);
  part.bytes = 25;
  part.piece = 10;
  EXPECT_EQ(Before({part}),
            "0:?ready1 0:copy2001>1001 1:after0 1:copy2011>1011 0:after1 0:copy2021>1021 0:=done1");
  EXPECT_EQ(After({part}), "");
  const Plan plan = MakePlan({{part}}, false);
  EXPECT_EQ(plan.before[5].bytes, 5U);
  const std::vector<PlanStream> streams = {{}, {.lane = 0, .kind = PlanStream::kBeside}};
  EXPECT_TRUE(plan.streams == streams);
}

TEST_F(PlanTest, ACopyIsOverWithItsLastPiece) {
  Part part = Of(Part::Kind::kCopy, 3, 1);
  part.bytes = 20;
  part.piece = 10;
  const std::vector<Part> parts = {part, Of(Part::Kind::kCopy, 3, 2)};
  EXPECT_EQ(Before(parts),
            "0:?ready1 0:copy2001>1001 1:after0 1:copy2011>1011 0:after1 0:=done1 "
            "0:?ready2 0:copy2002>1002 0:=done2");
  EXPECT_EQ(Before(parts, true),
            "1:after0 1:?ready1 1:copy2001>1001 2:after1 2:copy2011>1011 1:after2 1:=done1 1:mark "
            "1:?ready2 1:copy2002>1002 1:=done2 1:mark");
  EXPECT_EQ(After(parts, true), "1:join");
  EXPECT_TRUE(MakePlan(parts, true).streams.back() ==
              (PlanStream{.lane = 3, .kind = PlanStream::kBesideToPeer}));
}

TEST_F(PlanTest, WhatIsStagedIsSentInPieces) {
  Part part = Of(Part::Kind::kStaged, 0, 1);
  part.bytes = 25;
  part.piece = 10;
  EXPECT_EQ(Before({part}),
            "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 "
            "3:after2 3:copy3011>1011 2:after3 2:copy3021>1021 2:=done1");
  EXPECT_EQ(After({part}), "1:join");
}

TEST_F(PlanTest, ALastPieceMayBeWhole) {
  Part part = Of(Part::Kind::kCopy, 0, 1);
  part.bytes = 10;
  part.piece = 10;
  EXPECT_EQ(Before({part}), "0:?ready1 0:copy2001>1001 0:=done1");
}

TEST_F(PlanTest, AGraphHasOneCopy) {
  Part part = Of(Part::Kind::kCopy, 0, 1);
  part.bytes = 25;
  part.piece = 10;
  part.again = true;
  EXPECT_EQ(Before({part}), "0:?ready1 0:=ready1 0:copy2001>1001 0:=done1");
}

TEST_F(PlanTest, NothingIsNothing) {
  EXPECT_EQ(Before({}), "");
  EXPECT_EQ(After({}), "");
}

}  // namespace
}  // namespace nccltune::sendrecv
