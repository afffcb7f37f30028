// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/plan.h"
#include "sendrecv/route.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

using Kind = MessageTransfer::Kind;

struct Flags {
  Flag ready = 0;
  Flag done = 0;
};

class PlanTest : public testing::Test {
 protected:
  MessageTransfer Of(Kind kind, size_t lane, size_t message, uint64_t bytes = 1,
                     uint64_t piece = 0) {
    return {.kind = kind,
            .lane = lane,
            .ready = &flags_[message].ready,
            .done = &flags_[message].done,
            .value = static_cast<uint32_t>(message),
            .to = 1000 + message,
            .from = 2000 + message,
            .staging = 3000 + message,
            .wait_for = {},
            .bytes = bytes,
            .piece = piece,
            .channels = {}};
  }

  // Formats operations as `0:=ready1 1:after0 ...`: stream, operation, message.
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
    return "none";
  }

  // Two of the three channels have operations.
  MessageTransfer Buffered(Kind kind) {
    MessageTransfer transfer = Of(kind, 0, 1);
    const auto copy = [](DeviceAddress from, DeviceAddress to) {
      return Operation{.kind = Operation::Kind::kCopy, .to = to, .from = from};
    };
    transfer.channels = {{copy(500, 600), copy(501, 601)}, {}, {copy(502, 602)}};
    return transfer;
  }

  // Expects the operations before NCCL's and after them, beside messages of NCCL or without.
  void Expect(const std::vector<MessageTransfer>& transfers, const std::string& before,
              const std::string& after, bool native = false) const {
    const Plan plan = MakePlan(transfers, native);
    EXPECT_EQ(Words(plan.before_native, *this), before);
    EXPECT_EQ(Words(plan.after_native, *this), after);
  }

  std::array<Flags, 6> flags_;
};

TEST_F(PlanTest, OneReceive) { Expect({Of(Kind::kPeerCopies, 0, 1)}, "0:=ready1", "0:?done1"); }

TEST_F(PlanTest, ARingNeedsNoOtherStream) {
  const std::vector<MessageTransfer> transfers = {Of(Kind::kCopy, 0, 1),
                                                  Of(Kind::kPeerCopies, 1, 2)};
  Expect(transfers, "0:=ready2 0:?ready1 0:copy2001>1001 0:=done1", "0:?done2");
  EXPECT_EQ(MakePlan(transfers, false).streams.size(), 1U);
}

TEST_F(PlanTest, WhoIsReadyIsNotWaitedFor) {
  MessageTransfer transfer = Of(Kind::kCopy, 0, 1);
  transfer.peer_is_ready = true;
  Expect({transfer}, "0:copy2001>1001 0:=done1", "");
}

TEST_F(PlanTest, OfAGraphWhoWaitsForAFlagResetsIt) {
  std::vector<MessageTransfer> transfers = {Of(Kind::kCopy, 0, 1), Of(Kind::kPeerCopies, 1, 2)};
  for (MessageTransfer& transfer : transfers) transfer.in_graph = true;
  Expect(transfers, "0:=ready2 0:?ready1 0:=ready1 0:copy2001>1001 0:=done1", "0:?done2 0:=done2");
  EXPECT_EQ(MakePlan(transfers, false).before_native[2].value, 0U);
  EXPECT_TRUE(MakePlan(transfers, true).streams.back() ==
              (PlanStream{.lane = 0, .kind = PlanStream::kOfGraph}));
}

TEST_F(PlanTest, EachLaneThatCopiesHasItsStream) {
  const std::vector<MessageTransfer> transfers = {Of(Kind::kCopy, 4, 1), Of(Kind::kCopy, 2, 2),
                                                  Of(Kind::kCopy, 4, 3),
                                                  Of(Kind::kPeerCopies, 1, 4)};
  Expect(transfers,
         "0:=ready4 1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark "
         "2:after0 2:?ready2 2:copy2002>1002 2:=done2 2:mark "
         "1:?ready3 1:copy2003>1003 1:=done3 1:mark",
         "1:join 2:join 0:?done4");
  const std::vector<PlanStream> streams = {
      {}, {.lane = 4, .kind = PlanStream::kToPeer}, {.lane = 2, .kind = PlanStream::kToPeer}};
  EXPECT_TRUE(MakePlan(transfers, false).streams == streams);
}

TEST_F(PlanTest, BesideNcclACopyHasAStreamOfItsOwn) {
  Expect({Of(Kind::kCopy, 0, 1)}, "1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark", "1:join",
         true);
}

TEST_F(PlanTest, OfWhatIsStagedOnlyTheStagingIsWaitedFor) {
  MessageTransfer transfer = Of(Kind::kStagedCopy, 0, 1);
  Expect({transfer}, "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 2:=done1",
         "1:join");
  // It waits for its place.
  transfer.wait_for = {{&flags_[3].done, 3}, {&flags_[4].done, 4}};
  Expect({transfer},
         "1:after0 1:?done3 1:?done4 1:copy2001>3001 1:mark "
         "2:after1 2:?ready1 2:copy3001>1001 2:=done1",
         "1:join");
}

TEST_F(PlanTest, AStagedSendIsSignalledAfterItsCopy) {
  MessageTransfer transfer = Of(Kind::kStagedForPeer, 0, 1);
  transfer.wait_for = {{&flags_[3].done, 3}};
  Expect({transfer}, "1:after0 1:?done3 1:copy2001>3001 1:=ready1 1:mark", "1:join");
}

TEST_F(PlanTest, SendsBesideAStagedOneKeepTheirOrder) {
  Expect({Of(Kind::kStagedCopy, 0, 1), Of(Kind::kCopy, 0, 2)},
         "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 2:=done1 "
         "2:?ready2 2:copy2002>1002 2:=done2 2:mark",
         "1:join 2:join");
  // The receive of the staged send may be posted long after the group ends: it is not waited for.
  Expect({Of(Kind::kCopy, 0, 1), Of(Kind::kStagedCopy, 0, 2)},
         "1:after0 1:?ready1 1:copy2001>1001 1:=done1 1:mark 2:after0 2:copy2002>3002 2:mark "
         "1:after2 1:?ready2 1:copy3002>1002 1:=done2",
         "1:join 2:join");
}

TEST_F(PlanTest, EachChannelHasAStream) {
  const std::vector<MessageTransfer> transfers = {Buffered(Kind::kBufferedSend)};
  const char* const before =
      "1:after0 1:copy500>600 1:copy501>601 1:mark 2:after0 2:copy502>602 2:mark";
  Expect(transfers, before, "1:join 2:join");
  const std::vector<PlanStream> streams = {{},
                                           {.lane = 0, .kind = PlanStream::kToChannel},
                                           {.lane = 0, .kind = PlanStream::kToChannel + 2}};
  EXPECT_TRUE(MakePlan(transfers, false).streams == streams);
  // A message is done when its channels are.
  Expect({Buffered(Kind::kBufferedReceive)}, before, "1:join 2:join 0:=done1");
}

TEST_F(PlanTest, ACopyInPieces) {
  MessageTransfer transfer = Of(Kind::kCopy, 0, 1, 25, 10);
  Expect({transfer},
         "0:?ready1 0:copy2001>1001 1:after0 1:copy2011>1011 0:after1 0:copy2021>1021 0:=done1",
         "");
  const Plan plan = MakePlan({{transfer}}, false);
  EXPECT_EQ(plan.before_native[5].bytes, 5U);
  const std::vector<PlanStream> streams = {{}, {.lane = 0, .kind = PlanStream::kBeside}};
  EXPECT_TRUE(plan.streams == streams);
  // A last piece may be whole, and a graph has one copy.
  Expect({Of(Kind::kCopy, 0, 1, 10, 10)}, "0:?ready1 0:copy2001>1001 0:=done1", "");
  transfer.in_graph = true;
  Expect({transfer}, "0:?ready1 0:=ready1 0:copy2001>1001 0:=done1", "");
}

TEST_F(PlanTest, ACopyIsOverWithItsLastPiece) {
  const std::vector<MessageTransfer> transfers = {Of(Kind::kCopy, 3, 1, 20, 10),
                                                  Of(Kind::kCopy, 3, 2)};
  Expect(transfers,
         "0:?ready1 0:copy2001>1001 1:after0 1:copy2011>1011 0:after1 0:=done1 "
         "0:?ready2 0:copy2002>1002 0:=done2",
         "");
  Expect(transfers,
         "1:after0 1:?ready1 1:copy2001>1001 2:after1 2:copy2011>1011 1:after2 1:=done1 1:mark "
         "1:?ready2 1:copy2002>1002 1:=done2 1:mark",
         "1:join", true);
  EXPECT_TRUE(MakePlan(transfers, true).streams.back() ==
              (PlanStream{.lane = 3, .kind = PlanStream::kBesideToPeer}));
}

TEST_F(PlanTest, WhatIsStagedIsSentInPieces) {
  Expect({Of(Kind::kStagedCopy, 0, 1, 25, 10)},
         "1:after0 1:copy2001>3001 1:mark 2:after1 2:?ready1 2:copy3001>1001 "
         "3:after2 3:copy3011>1011 2:after3 2:copy3021>1021 2:=done1",
         "1:join");
}

TEST_F(PlanTest, NothingIsNothing) { Expect({}, "", ""); }

constexpr DeviceAddress kBase = 0x1000;

std::optional<Staging::Region> Take(Staging& staging, uint64_t bytes, Flag& done, uint32_t value) {
  const auto room = staging.Find(bytes);
  if (room) staging.Take(*room, done, value);
  return room;
}

TEST(Staging, ALaterSendWaitsForTheOneInItsPlace) {
  Staging staging(kBase, 4096);
  std::array<Flag, 5> done = {};
  auto room = Take(staging, 2048, done[0], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  EXPECT_TRUE(room->wait_for.empty());
  room = Take(staging, 1024, done[1], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty());
  // The 1,024 bytes at the end of the ring are too few.
  room = Take(staging, 2048, done[2], 7);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  ASSERT_EQ(room->wait_for.size(), 1U);
  EXPECT_EQ(room->wait_for[0].done, done.data());
  EXPECT_EQ(room->wait_for[0].value, 1U);
  done[1] = 1;
  room = Take(staging, 2048, done[3], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty()) << "its bytes are there";
  room = Take(staging, 4096, done[4], 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->wait_for.size(), 2U) << "all of it";
}

TEST(Staging, NobodyWaitsForWhoWentWithout) {
  Staging staging(kBase, 4096);
  Flag done = 0;
  ASSERT_TRUE(staging.Find(3072));
  auto room = Take(staging, 2048, done, 1);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase);
  ASSERT_EQ(staging.Find(4096)->wait_for.size(), 1U);
  room = staging.Find(2048);
  ASSERT_TRUE(room);
  EXPECT_EQ(room->at, kBase + 2048);
  EXPECT_TRUE(room->wait_for.empty());
}

TEST(Staging, WhatIsTooLargeHasNoRoomEver) {
  Staging staging(kBase, 4096);
  Flag done = 0;
  EXPECT_FALSE(Take(staging, 4097, done, 1));
  EXPECT_TRUE(Take(staging, 4096, done, 1));
}

TEST(Staging, NeverGivesAPlaceTwice) {
  struct MessageTransfer {
    DeviceAddress begin = 0;
    uint64_t bytes = 0;
    size_t flag = 0;
  };
  constexpr uint64_t kCapacity = 1 << 16;
  Staging staging(kBase, kCapacity);
  std::vector<Flag> done(2000);
  std::vector<MessageTransfer> held;
  std::mt19937 draw(7);
  size_t waited = 0;
  for (size_t i = 0; i < done.size(); ++i) {
    const uint64_t bytes = 1 + draw() % (kCapacity / 3);
    const auto room = Take(staging, bytes, done[i], 1);
    ASSERT_TRUE(room);
    ASSERT_GE(room->at, kBase);
    ASSERT_LE(room->at + bytes, kBase + kCapacity);
    for (const Staging::Completion& other : room->wait_for) {
      ++waited;
      std::erase_if(held,
                    [&](const MessageTransfer& each) { return &done[each.flag] == other.done; });
    }
    std::erase_if(held, [&](const MessageTransfer& each) { return done[each.flag] == 1; });
    for (const MessageTransfer& other : held) {
      ASSERT_TRUE(room->at + bytes <= other.begin || other.begin + other.bytes <= room->at);
    }
    held.push_back({room->at, bytes, i});
    // The messages complete in any order.
    if (draw() % 2 == 0) done[held[draw() % held.size()].flag] = 1;
  }
  EXPECT_GT(waited, done.size() / 10);
}

constexpr uint64_t kMiB = 1 << 20;
constexpr Policy kPolicy = {.eager_limit = 64 * kMiB, .sends_may_wait = false};
constexpr Policy kLoose = {.eager_limit = 64 * kMiB, .sends_may_wait = true};
constexpr MessageConditions kSmallAlone = {
    .bytes = 64 * kMiB, .can_copy = true, .group_receives = false};
constexpr MessageConditions kLargeAlone = {
    .bytes = 64 * kMiB + 1, .can_copy = true, .group_receives = false};
constexpr MessageConditions kStagingInReach = {
    .bytes = 64 * kMiB, .can_copy = true, .group_receives = false, .staging = true};
constexpr MessageConditions kInGroup = {.bytes = kMiB, .can_copy = true, .group_receives = true};
constexpr MessageConditions kImpossible = {
    .bytes = 512 * kMiB, .can_copy = false, .group_receives = true};

TEST(Decision, AReceiverThatIsFirstHasItPushed) {
  for (const MessageConditions& each : {kSmallAlone, kLargeAlone, kInGroup}) {
    EXPECT_EQ(DecideFirst(Role::kReceiver, each, kPolicy), MessageDecision::kPush);
  }
}

TEST(Decision, ASenderThatIsFirstHasItPulledWhereItMayWait) {
  EXPECT_EQ(DecideFirst(Role::kSender, kLargeAlone, kPolicy), MessageDecision::kPull);
  EXPECT_EQ(DecideFirst(Role::kSender, kInGroup, kPolicy), MessageDecision::kPull);
  EXPECT_EQ(DecideFirst(Role::kSender, kSmallAlone, kPolicy), MessageDecision::kNative);
  EXPECT_EQ(DecideFirst(Role::kSender, kSmallAlone, kLoose), MessageDecision::kPull);
}

TEST(Decision, ASenderThatIsFirstLeavesWhatThePeerCanFetch) {
  EXPECT_EQ(DecideFirst(Role::kSender, kStagingInReach, kPolicy), MessageDecision::kFetch);
  EXPECT_EQ(DecideFirst(Role::kSender, kStagingInReach, kLoose), MessageDecision::kPull);
  MessageConditions impossible = kStagingInReach;
  impossible.can_copy = false;
  EXPECT_EQ(DecideFirst(Role::kSender, impossible, kPolicy), MessageDecision::kNative);
}

TEST(Decision, WhatIsNotPossibleIsNative) {
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(DecideFirst(role, kImpossible, kLoose), MessageDecision::kNative);
  }
}

TEST(Decision, ASendAloneDoesNotWaitForWhatNcclWouldNotWaitFor) {
  EXPECT_EQ(ChooseSendMethod(false, kSmallAlone, kPolicy), SendMethod::kStaged);
  EXPECT_EQ(ChooseSendMethod(true, kSmallAlone, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kLargeAlone, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kInGroup, kPolicy), SendMethod::kDirect);
  EXPECT_EQ(ChooseSendMethod(false, kSmallAlone, kLoose), SendMethod::kDirect);
}

TEST(Decision, ThroughBuffersWhicheverSideIsFirst) {
  const Policy policy = {.vccl = true};
  for (const Role role : {Role::kSender, Role::kReceiver}) {
    EXPECT_EQ(DecideFirst(role, kInGroup, policy), MessageDecision::kBuffered);
    EXPECT_EQ(DecideFirst(role, kImpossible, policy), MessageDecision::kNative);
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
