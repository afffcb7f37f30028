// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/identity.h"

#include <sys/syscall.h>

#include "testing.h"

namespace nccltune::sendrecv {
namespace {

// Returns the token of a child process. `make` forks it and returns 0 in the child.
template <typename Fork>
ProcessToken TokenOfChild(const Fork& make) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = make();
  if (child == 0) {
    const ProcessToken token = ThisProcess();
    const bool same = token == ThisProcess();
    _exit(same && write(ends[1], &token, sizeof(token)) == sizeof(token) ? 0 : 1);
  }
  EXPECT_GT(child, 0);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ProcessToken token;
  close(ends[1]);
  EXPECT_EQ(read(ends[0], &token, sizeof(token)), static_cast<ssize_t>(sizeof(token)));
  close(ends[0]);
  return token;
}

// The tokens that threads see which ask at once.
std::vector<ProcessToken> OfThreads(size_t count) {
  std::vector<ProcessToken> seen(count);
  std::vector<std::thread> threads;
  for (ProcessToken& each : seen) threads.emplace_back([&each] { each = ThisProcess(); });
  for (std::thread& each : threads) each.join();
  return seen;
}

TEST(Identity, IsOneForAProcessAndItsThreads) {
  const ProcessToken token = ThisProcess();
  EXPECT_NE(token, ProcessToken{});
  for (const ProcessToken& each : OfThreads(8)) EXPECT_EQ(each, token);
}

// All threads must get the same token, although none was drawn before.
TEST(Identity, IsOneAlsoWhereThreadsAskAtOnce) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(InChild([] {
                const std::vector<ProcessToken> seen = OfThreads(4);
                return std::ranges::count(seen, ThisProcess()) == 4 ? 0 : 1;
              }),
              0);
  }
}

TEST(Identity, IsAnotherInAChild) {
  const ProcessToken mine = ThisProcess();
  std::set<uint64_t> seen = {mine.low};
  for (int i = 0; i < 3; ++i) {
    const ProcessToken child = TokenOfChild([] { return fork(); });
    EXPECT_NE(child, ProcessToken{});
    EXPECT_NE(child.high, mine.high);
    EXPECT_TRUE(seen.insert(child.low).second);
  }
  // A bare clone(2), which does not run the handlers of fork(3).
  const ProcessToken bare = TokenOfChild([] {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  });
  EXPECT_TRUE(seen.insert(bare.low).second);
  EXPECT_EQ(ThisProcess(), mine);
}

// Like two containers that share /dev/shm: both processes have PID 1.
TEST(Identity, IsAnotherInAPidNamespaceWithTheSamePid) {
  const auto in_namespace = [] {
    return static_cast<pid_t>(
        syscall(SYS_clone, SIGCHLD | CLONE_NEWPID, nullptr, nullptr, nullptr, nullptr));
  };
  const pid_t child = in_namespace();
  if (child < 0) GTEST_SKIP() << "this machine makes no PID namespaces for this user";
  if (child == 0) {
    // This process is PID 1 of a namespace, and its child is PID 1 of another.
    const ProcessToken mine = ThisProcess();
    const ProcessToken theirs = TokenOfChild(in_namespace);
    _exit(getpid() == 1 && mine != theirs && theirs != ProcessToken{} ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Identity, AHostIsIdentifiedAsNcclDoes) {
  unsetenv("NCCL_HOSTID");
  EXPECT_EQ(ThisHost(), 0U);
  setenv("NCCL_HOSTID", "node7", 1);
  const uint64_t host = ThisHost();
  EXPECT_NE(host, 0U);
  setenv("NCCL_HOSTID", "node8", 1);
  EXPECT_NE(ThisHost(), host);
  unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace nccltune::sendrecv
