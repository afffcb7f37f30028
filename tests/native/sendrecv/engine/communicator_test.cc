// SPDX-License-Identifier: Apache-2.0
// How a rank classifies another: as a peer, as a rank of its own process, or as neither.
#include "sendrecv/calls/calls.h"

#include <sys/syscall.h>

#include "sendrecv/calls/communicator_lifetimes.h"
#include "sendrecv/calls/message_call.h"
#include "sendrecv/engine/sharing.h"
#include "sendrecv/group/communicator.h"
#include "sendrecv/lane/enqueued_work.h"
#include "sendrecv/lane/verify.h"
#include "sendrecv/route.h"
#include "sendrecv/stand_in/processes.h"
#include "sendrecv/stand_in/soft_cuda.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

std::shared_ptr<Communicator> Join(const std::string& key, int rank) {
  soft::UseGpu(rank);
  std::string why;
  auto made = Communicator::Join(key, rank, {}, &why);
  EXPECT_NE(made, nullptr) << why;
  return made;
}

// Returns a copy of rank 0's port to rank 1, if there is one. `change` modifies rank 1's record
// before rank 0 looks for its peer.
std::optional<Port> PortTo(const std::string& name,
                           const std::function<void(RankRecord&)>& change) {
  LocalRanks ranks(name);
  change(ranks.record(1));
  ranks.Begin();
  const Port* const port = ranks.sends();
  return port == nullptr ? std::nullopt : std::optional<Port>(*port);
}

TEST(Communicator, KnowsARankOfItsOwnProcess) {
  const auto port = PortTo("own", [](RankRecord&) {});
  ASSERT_TRUE(port);
  EXPECT_TRUE(port->same_process);
}

TEST(Communicator, TakesAProcessWithTheSamePidForAnother) {
  const auto port = PortTo("pid", [](RankRecord& record) { ++record.process.low; });
  ASSERT_TRUE(port);
  EXPECT_FALSE(port->same_process);
  const auto nobody = PortTo("nobody", [](RankRecord& record) { record.process = {}; });
  ASSERT_TRUE(nobody);
  EXPECT_FALSE(nobody->same_process) << "a rank without a token is no other's neighbour";
}

TEST(Communicator, PublishesTheTokenOfItsMailbox) {
  LocalRanks ranks("mailbox");
  EXPECT_NE(ranks.record(0).mailbox, Token{});
  EXPECT_NE(ranks.record(1).mailbox, Token{});
  EXPECT_NE(ranks.record(0).mailbox, ranks.record(1).mailbox);
  ranks.Begin();
}

TEST(Communicator, LeavesAnotherReleaseAndAnotherHostToNccl) {
  EXPECT_FALSE(PortTo("release", [](RankRecord& record) { ++record.protocol; }));
  EXPECT_FALSE(PortTo("host", [](RankRecord& record) { record.host = 7; }));
  EXPECT_FALSE(PortTo("settings", [](RankRecord& record) { ++record.settings_hash; }));
}

// Without a lane between the two ranks, only the record shows that the peer has abandoned
// the communicator.
TEST(Communicator, APeerLearnsThatItWasGivenUp) {
  LocalRanks ranks("given up");
  ranks.Begin();
  EXPECT_NE(ranks[0]->FloorOf(1), UINT64_MAX) << "they are peers";
  EXPECT_EQ(ranks[0]->Failure().why, "");
  EXPECT_FALSE(ranks[0]->needs_check());
  ranks[1]->Break("the communicator was aborted");
  EXPECT_EQ(ranks[0]->Failure().why, "") << "no message is lost";
  EXPECT_TRUE(ranks[0]->needs_check());
}

// The peer's process may be stopped, and NCCL would not wait for it.
TEST(Communicator, APeerThatDoesNotKnowItsRankIsLeftToNccl) {
  const std::string key = "no rank " + std::to_string(getpid());
  soft::UseGpu(0);
  std::string why;
  const auto zero = Communicator::Join(key, -1, {}, &why);
  const auto one = Communicator::Join(key, -1, {}, &why);
  ASSERT_TRUE(zero != nullptr && one != nullptr) << why;
  zero->Begin(0);
  EXPECT_EQ(zero->FloorOf(1), UINT64_MAX);
  // Both sides agree on it when the peer goes on.
  one->Begin(1);
  Port* const port = one->FindPort(0, Role::kSender, true);
  ASSERT_NE(port, nullptr);
  EXPECT_FALSE(port->end->PassGate());
  EXPECT_TRUE(port->end->closed() && port->end->is_unusable());
  EXPECT_TRUE(zero->Close() && one->Close());
}

TEST(Communicator, KnowsStreamsOfOtherContexts) {
  const auto made = Join("streams " + std::to_string(getpid()), 0);
  made->Begin(0);
  const soft::CUstream ours = soft::NewStream();
  soft::UseGpu(1);
  const soft::CUstream other = soft::NewStream();
  EXPECT_TRUE(made->driver().Owns(ours));
  EXPECT_TRUE(made->driver().Owns(nullptr));
  EXPECT_FALSE(made->driver().Owns(other));
  EXPECT_TRUE(made->Close());
}

// Two processes that are both PID 1 in PID namespaces of their own, like two containers with one
// /dev/shm. Neither must take the other for itself.
TEST(Communicator, OfTwoPidNamespaces) {
  const std::string key = "namespaces " + std::to_string(getpid());
  soft::Ranks ranks(2);
  soft::Shared& shared = ranks.shared();
  const auto run = [&](int rank) {
    if (getpid() != 1) return 3;
    const auto made = Join(key, rank);
    if (made == nullptr) return 4;
    shared.flags[rank].store(1);
    if (!soft::Soon([&] { return shared.flags[1 - rank].load() >= 1; })) return 5;
    made->Begin(rank);
    const Port* const port = made->FindPort(1 - rank, Role::kSender, true);
    if (port == nullptr) return 6;
    shared.flags[rank].store(2);
    if (!soft::Soon([&] { return shared.flags[1 - rank].load() == 2; })) return 7;
    return port->same_process ? 8 : 0;
  };
  int statuses[2] = {-1, -1};
  pid_t children[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = static_cast<pid_t>(
        syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, nullptr, nullptr, nullptr, nullptr));
    if (children[rank] == 0) _exit(run(rank));
    if (children[rank] < 0) {
      if (rank == 1) kill(children[0], SIGKILL);
      GTEST_SKIP() << "this machine makes no PID namespaces for this user";
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    waitpid(children[rank], &statuses[rank], 0);
    EXPECT_EQ(statuses[rank], 0) << "rank " << rank << ": exit status " << statuses[rank] / 256;
  }
}

// At a regular end the last messages of a peer may complete a moment after it has left.
TEST(EnqueuedWork, NcclsMessagesAreLostOnlySomeTimeAfterTheirPeer) {
  soft::UseGpu(0);
  std::string why;
  const auto driver = CudaDriver::OfCurrent(*OpenCuda(&why), &why);
  ASSERT_NE(driver, nullptr) << why;
  EnqueuedWork work(*driver);
  constexpr std::array kPeers = {3};
  work.TrackPeer(3);
  work.BeginNative(kPeers);
  work.PeerLost(3);
  const auto now = EnqueuedWork::Clock::now();
  EXPECT_FALSE(work.MayWaitFor(3, now));
  EXPECT_TRUE(work.MayWaitFor(3, now - std::chrono::seconds(2)));
  EXPECT_FALSE(work.MayWaitFor(4, now - std::chrono::seconds(2))) << "it has no messages";
  work.Clear();
}

// Memory of captured messages stays exported until the communicator ends. Rank 0 exports a span of
// two chunks. Then the chunk that no message uses is replaced.
TEST(GraphMemory, StaysExportedWhenAnotherChunkIsReplaced) {
  for (const bool captured : {false, true}) {
    SendRecvOptions options;
    options.policy.graphs = true;
    LocalRanks ranks("graph memory", options, options);
    ranks.Begin();
    Port* const sends = ranks.sends();
    Port* const receives = ranks.receives();
    ASSERT_TRUE(sends != nullptr && receives != nullptr);
    soft::UseGpu(0);
    Segments memory(2, 2);
    const auto find = [&](size_t chunk) {
      return ranks[0]->FindMemory(1, Role::kSender, memory.at(chunk * kChunk), kChunk);
    };
    const auto is_exported = [&](uint64_t number) {
      ranks[0]->WithdrawStale();
      return std::ranges::any_of(ranks.record(0).exports, [&](const ExportEntry& entry) {
        return entry.number.load() == number;
      });
    };
    const uint64_t number = find(0).number;
    ASSERT_TRUE(is_exported(number));
    if (captured) {
      const CapturedMessage first = sends->end->Capture(kChunk, number, 0);
      receives->end->Capture(kChunk, 1, 0);
      ASSERT_NE(receives->end->AcceptCapture(true), nullptr);
      ASSERT_NE(sends->end->ResolveCapture(first.number), nullptr);
    }
    memory.Unmap(1);
    memory.Map(1);
    EXPECT_NE(find(1).number, number) << "the old span gets no more messages";
    EXPECT_EQ(is_exported(number), captured);
  }
}

// Returns whether a thread of this process sleeps, for example because it waits for a mutex.
bool Sleeps(int thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  return stat.find(") S ") != std::string::npos;
}

std::chrono::steady_clock::time_point InAMinute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

// Does `work` in a thread while a call holds the communicator's lock. The call ends when the thread
// waits, after `meanwhile`.
void BesideACall(Communicator& communicator, const std::function<void()>& work,
                 const std::function<void()>& meanwhile = nullptr) {
  std::unique_lock call(communicator.mutex());
  std::atomic<int> id = 0;
  std::thread other([&] {
    soft::UseGpu(0);
    id = gettid();
    work();
  });
  EXPECT_TRUE(soft::Soon([&] { return id != 0 && Sleeps(id); }));
  if (meanwhile) meanwhile();
  call.unlock();
  other.join();
}

// Two threads may have groups of the same communicators, in opposite orders.
TEST(LockOrder, IsTheSameForAllGroups) {
  soft::UseGpu(0);
  std::shared_ptr<Communicator> comms[2];
  for (auto& each : comms) {
    std::string why;
    const std::string key =
        "order " + std::to_string(getpid()) + " " + std::to_string(&each - comms);
    each = Communicator::Join(key, 0, {}, &why);
    ASSERT_NE(each, nullptr) << why;
    each->Begin(0);
  }
  if (std::less<>()(comms[1].get(), comms[0].get())) std::swap(comms[0], comms[1]);
  Native native;
  native.Send = [](const void*, size_t, nccl::DataType, int, nccl::Comm, nccl::Stream) {
    return nccl::Result{abi::kSuccess};
  };
  GroupCalls calls;
  for (const int which : {1, 0}) {
    HeldCall held;
    held.message = {.buffer = &native, .count = 1, .peer = 1, .communicator = comms[which]};
    calls.held.push_back(std::move(held));
  }
  calls.end = [] { return nccl::Result{abi::kSuccess}; };
  const auto run = [&] {
    RunCalls(std::move(calls), native, abi::kSuccess, [](const GroupCalls&) {});
  };
  BesideACall(*comms[0], run, [&] {
    const std::unique_lock second(comms[1]->mutex(), InAMinute());
    EXPECT_TRUE(second.owns_lock()) << "the other thread has locked the second one first";
  });
  // The watcher may hold a lock at this moment.
  for (const auto& each : comms) EXPECT_TRUE(soft::Soon([&] { return each->Close(); }));
}

TEST(RetiredCommunicators, AreReleasedAlsoIfTheirLockIsHeldForAMoment) {
  const auto made = Join("released " + std::to_string(getpid()), 0);
  made->Begin(0);
  RetiredCommunicators retired;
  retired.Add(made);
  // The moment may be longer than the limit if this machine is busy.
  for (int tries = 0; made.use_count() > 1 && tries < 10; ++tries) {
    BesideACall(*made, [&] { retired.Release(std::chrono::milliseconds(0)); });
  }
  EXPECT_EQ(made.use_count(), 1);
}

TEST(RetiredCommunicators, AreReleasedWhenPeersHaveReceived) {
  LocalRanks ranks("retired");
  ranks.Begin();
  Port* const sends = ranks.sends();
  Port* const receives = ranks.receives();
  ASSERT_TRUE(sends != nullptr && receives != nullptr);
  const uint64_t number = sends->end->Post(8, 1, 0, MessageDecision::kFetch).number;

  RetiredCommunicators retired;
  retired.Add(ranks[0]);
  retired.Release(std::chrono::milliseconds(0));
  {
    const std::unique_lock call(ranks[0]->mutex());
    EXPECT_FALSE(ranks[0]->HasUnreceivedSends({})) << "nothing is known, and the limit is over";
  }
  bool unreceived = false;
  BesideACall(*ranks[0], [&] { unreceived = ranks[0]->HasUnreceivedSends(InAMinute()); });
  EXPECT_TRUE(unreceived) << "it is not released before, also if nobody waits for it";

  // The peer takes longer than the patience, but it is alive.
  constexpr std::chrono::milliseconds kPatience(1);
  std::atomic<int> id = 0;
  std::thread releaser([&] {
    soft::UseGpu(0);
    id = gettid();
    retired.Release(kPatience);
  });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(soft::Soon([&] {
    return std::chrono::steady_clock::now() - began > 20 * kPatience && id != 0 && Sleeps(id);
  })) << "it waits for the peer";
  receives->end->Post(8, 1, 0, MessageDecision::kNative);
  receives->end->SlotOf(number).done.store(FlagValue(number));
  releaser.join();
  EXPECT_FALSE(ranks[0]->HasUnreceivedSends(InAMinute()));
}

// A send from rank 0 to rank 1.
MessageCall Send(const LocalRanks& ranks, uint64_t bytes) {
  static char buffer = 0;
  return {.role = Role::kSender,
          .buffer = &buffer,
          .count = bytes,
          .type = nccl::kInt8,
          .peer = 1,
          .communicator = ranks[0]};
}

Eligibility OfSend(const LocalRanks& ranks, uint64_t bytes) {
  return EligibilityOfCall(Send(ranks, bytes));
}

const uint64_t kFrom = SendRecvOptions().from;

TEST(Eligibility, BeginsAtTheLowerOfBothThresholds) {
  SendRecvOptions zero;
  SendRecvOptions one;
  zero.from = 5000;
  one.from = 4000;
  LocalRanks ranks("thresholds", zero, one);
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, 3999), Eligibility::kNative);
  EXPECT_EQ(OfSend(ranks, 4000), Eligibility::kEligible);
}

TEST(Eligibility, EndsWhenTheLaneIsClosed) {
  LocalRanks ranks("closed");
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kEligible);
  Port* const port = ranks.sends();
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kEligible);
  ASSERT_TRUE(port->end->Close());
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kNative);
}

TEST(Eligibility, WhatNcclChecksAtTheCallIsNotTracked) {
  LocalRanks ranks("tracked");
  ranks.Begin();
  MessageCall call = Send(ranks, kFrom);
  call.peer = 0;
  EXPECT_EQ(EligibilityOfCall(call), Eligibility::kUntracked) << "a message of a rank to itself";
  call = Send(ranks, 0);
  EXPECT_EQ(EligibilityOfCall(call), Eligibility::kUntracked) << "no bytes";
  call = Send(ranks, SIZE_MAX);
  call.type = nccl::DataType{7};  // 4 bytes
  EXPECT_EQ(EligibilityOfCall(call), Eligibility::kUntracked)
      << "more bytes than a number can hold";
  call = Send(ranks, kFrom);
  call.buffer = nullptr;
  EXPECT_EQ(EligibilityOfCall(call), Eligibility::kUntracked) << "no memory";
}

TEST(Eligibility, APeerWithOtherSettingsAndADryRunHaveNone) {
  SendRecvOptions other;
  other.policy.graphs = true;
  LocalRanks ranks("other settings", {}, other);
  ranks.Begin();
  EXPECT_EQ(OfSend(ranks, kFrom), Eligibility::kNative);
  SendRecvOptions dry;
  dry.dry_run = true;
  LocalRanks dry_ranks("dry", dry, dry);
  dry_ranks.Begin();
  EXPECT_EQ(OfSend(dry_ranks, kFrom), Eligibility::kNative);
}

TEST(Counts, NameWhatWasTakenAlone) {
  Counts counts;
  EXPECT_EQ(counts.Report(), "");
  counts.Add(Route::kPushed, 100);
  counts.Add(Route::kPushed, 20);
  counts.Add(Route::kDry, 7);
  EXPECT_EQ(counts.Report(),
            "copy engine, pushed: 2 messages, 120 bytes\n"
            "NCCL: dry run, a copy engine would have carried it: 1 messages, 7 bytes\n");
  EXPECT_EQ(counts.Get(Route::kPushed).bytes, 120U);
  EXPECT_EQ(counts.Get(Route::kPulled).messages, 0U);
}

constexpr uint64_t kMiB = uint64_t{1} << 20;

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    soft::UseGpu(0);
    std::string why;
    driver_ = CudaDriver::OfCurrent(*OpenCuda(&why), &why);
    EXPECT_NE(driver_, nullptr) << why;
    stream_ = driver_->NewStream();
    verifier_ = std::make_unique<Verifier>(
        *driver_, [this](const std::string& what) { wrong_.push_back(what); });
  }
  ~VerifyTest() override { driver_->DeleteStream(stream_); }

  void Finish() {
    ASSERT_TRUE(soft::Soon([&] { return driver_->IsComplete(stream_); }));
  }

  // Returns how many messages were compared while one of `bytes` went from `sent` to `received`.
  uint64_t Compare(DeviceAddress sent, DeviceAddress received, uint64_t bytes, uint64_t number) {
    const uint64_t before = ProcessCounts().Get(Route::kChecked).messages;
    EXPECT_TRUE(verifier_->Sum(stream_, sent, bytes, sums_.get(), number));
    EXPECT_TRUE(
        verifier_->Check(stream_, received, bytes, sums_.get(), number, "rank 0 to rank 1"));
    Finish();
    return ProcessCounts().Get(Route::kChecked).messages - before;
  }

  std::unique_ptr<CudaDriver> driver_;
  Stream stream_ = nullptr;
  std::unique_ptr<Sums> sums_ = std::make_unique<Sums>();
  std::vector<std::string> wrong_;
  std::unique_ptr<Verifier> verifier_;
};

TEST_F(VerifyTest, SameBytesAreRight) {
  for (const uint64_t bytes : {kMiB, kMiB + 3, 70 * kMiB + 5}) {
    const DeviceAddress one = soft::Fill(bytes, 7);
    const DeviceAddress other = soft::Fill(bytes, 7);
    EXPECT_EQ(Compare(one, other, bytes, 1), 1U);
    EXPECT_TRUE(wrong_.empty()) << wrong_.front();
    driver_->Free(one);
    driver_->Free(other);
  }
}

TEST_F(VerifyTest, OneOtherByteIsWrong) {
  // The last byte is part of the checksum for every size.
  for (const uint64_t bytes : {kMiB + 3, 70 * kMiB + 5}) {
    for (const uint64_t at : {uint64_t{0}, bytes - 1}) {
      const DeviceAddress one = soft::Fill(bytes, 7);
      const DeviceAddress other = soft::Fill(bytes, 7);
      ASSERT_EQ(
          soft::cuMemsetD8_v2(other + at, static_cast<uint8_t>(soft::Fetch(one + at, 1)[0] + 1), 1),
          soft::kCudaSuccess);
      wrong_.clear();
      EXPECT_EQ(Compare(one, other, bytes, 5), 1U);
      ASSERT_EQ(wrong_.size(), 1U) << bytes << " " << at;
      EXPECT_EQ(wrong_[0], "rank 0 to rank 1: message 5 of " + std::to_string(bytes) +
                               " bytes arrived with other bytes than were sent");
      driver_->Free(one);
      driver_->Free(other);
    }
  }
}

TEST_F(VerifyTest, ASumThatIsNotThereAnyMoreChecksNothing) {
  const DeviceAddress one = soft::Fill(kMiB, 1);
  const DeviceAddress other = soft::Fill(kMiB, 2);
  ASSERT_TRUE(verifier_->Sum(stream_, one, kMiB, sums_.get(), 3));
  ASSERT_TRUE(verifier_->Sum(stream_, one, kMiB, sums_.get(), 3 + Sums::kMessages));
  const uint64_t before = ProcessCounts().Get(Route::kChecked).messages;
  ASSERT_TRUE(verifier_->Check(stream_, other, kMiB, sums_.get(), 3, "a lane"));
  Finish();
  EXPECT_EQ(ProcessCounts().Get(Route::kChecked).messages, before);
  EXPECT_TRUE(wrong_.empty());
  driver_->Free(one);
  driver_->Free(other);
}

}  // namespace
}  // namespace nccltune::sendrecv
