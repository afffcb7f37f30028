// SPDX-License-Identifier: Apache-2.0
//
// How a rank classifies another: as a peer, as a rank of its own process, or as neither.
#include "sendrecv/communicator.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {
namespace {

std::shared_ptr<Communicator> Join(const std::string& key, int rank) {
  soft::UseGpu(rank);
  std::string why;
  auto made = Communicator::Join(key, rank, {}, &why);
  EXPECT_NE(made, nullptr) << why;
  return made;
}

// A record of rank 0's segment, so that a test can change it.
RankRecord& RecordOf(const std::string& key, size_t place) {
  std::string why;
  return Segment::Open(key, &why)->memory().records[place];
}

// Joins both ranks in this process. `change` modifies rank 1's record before rank 0 looks for its
// peer.
Port* PortTo(const std::string& name, const std::function<void(RankRecord&)>& change) {
  const std::string key = name + " " + std::to_string(getpid());
  const auto zero = Join(key, 0);
  const auto one = Join(key, 1);
  change(RecordOf(key, 1));
  zero->Begin(0);
  one->Begin(1);
  Port* const port = zero->FindPort(1, Role::kSender, true);
  // A copy, because the communicator's own port ends with it.
  static Port copy;
  if (port != nullptr) copy = *port;
  EXPECT_TRUE(zero->Close() && one->Close());
  return port == nullptr ? nullptr : &copy;
}

TEST(Communicator, KnowsARankOfItsOwnProcess) {
  const Port* const port = PortTo("own", [](RankRecord&) {});
  ASSERT_NE(port, nullptr);
  EXPECT_TRUE(port->same_process);
}

TEST(Communicator, TakesAProcessWithTheSamePidForAnother) {
  const Port* const port = PortTo("pid", [](RankRecord& record) { ++record.process.low; });
  ASSERT_NE(port, nullptr);
  EXPECT_FALSE(port->same_process);
  const Port* const nobody = PortTo("nobody", [](RankRecord& record) { record.process = {}; });
  ASSERT_NE(nobody, nullptr);
  EXPECT_FALSE(nobody->same_process) << "a rank without a token is no other's neighbour";
}

TEST(Communicator, PublishesTheTokenOfItsMailbox) {
  const std::string key = "mailbox " + std::to_string(getpid());
  const auto zero = Join(key, 0);
  const auto one = Join(key, 1);
  EXPECT_NE(RecordOf(key, 0).mailbox, Token{});
  EXPECT_NE(RecordOf(key, 1).mailbox, Token{});
  EXPECT_NE(RecordOf(key, 0).mailbox, RecordOf(key, 1).mailbox);
}

TEST(Communicator, LeavesAnotherReleaseAndAnotherHostToNccl) {
  EXPECT_EQ(PortTo("release", [](RankRecord& record) { ++record.protocol; }), nullptr);
  EXPECT_EQ(PortTo("host", [](RankRecord& record) { record.host = 7; }), nullptr);
  EXPECT_EQ(PortTo("settings", [](RankRecord& record) { ++record.settings_hash; }), nullptr);
}

// Without a lane between the two ranks, only the record shows that the peer has abandoned
// the communicator.
TEST(Communicator, APeerLearnsThatItWasGivenUp) {
  const std::string key = "given up " + std::to_string(getpid());
  const auto zero = Join(key, 0);
  const auto one = Join(key, 1);
  zero->Begin(0);
  one->Begin(1);
  EXPECT_NE(zero->FloorOf(1), UINT64_MAX) << "they are peers";
  EXPECT_EQ(zero->Failure().why, "");
  EXPECT_FALSE(zero->needs_check());
  one->Break("the communicator was aborted");
  EXPECT_EQ(zero->Failure().why, "") << "no message is lost";
  EXPECT_TRUE(zero->needs_check());
  EXPECT_TRUE(zero->Close() && one->Close());
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

}  // namespace
}  // namespace nccltune::sendrecv
