// SPDX-License-Identifier: Apache-2.0
// The shared object as it is shipped, by its symbols.
#include "abi/net.h"

#include "testing.h"

namespace nccltune::net {
namespace {

constexpr rlim_t kSoft = 300;
constexpr rlim_t kHard = 2000;

void Silent(abi::LogLevel /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
            const char* /*format*/, ...) {}

// Returns the soft limit after init; `setting` is the variable's value.
rlim_t LimitAfterInit(const char* setting) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {.rlim_cur = kSoft, .rlim_max = kHard};
    setrlimit(RLIMIT_NOFILE, &limit);
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    unsetenv("NCCLTUNE_NET_NOFILE");
    if (setting != nullptr) setenv("NCCLTUNE_NET_NOFILE", setting, 1);
    void* const library = dlopen(NET_PLUGIN, RTLD_NOW);
    if (library == nullptr) _exit(1);
    const auto* const net = static_cast<const abi::NetV11*>(dlsym(library, "ncclNetPlugin_v11"));
    void* context = nullptr;
    abi::NetCommConfig config = {abi::kNetUndefined};
    if (net->init(&context, 0, &config, Silent, nullptr) != abi::kSuccess) _exit(2);
    getrlimit(RLIMIT_NOFILE, &limit);
    const bool written = write(ends[1], &limit.rlim_cur, sizeof(limit.rlim_cur)) > 0;
    net->finalize(context);
    _exit(written && limit.rlim_max == kHard ? 0 : 3);
  }
  close(ends[1]);
  rlim_t limit = 0;
  EXPECT_EQ(read(ends[0], &limit, sizeof(limit)), static_cast<ssize_t>(sizeof(limit)));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return limit;
}

TEST(DescriptorLimit, IsRaisedByInitAsFarAsTheHardLimitAllows) {
  EXPECT_EQ(LimitAfterInit(nullptr), kHard);
}

TEST(DescriptorLimit, IsRaisedToTheSetting) { EXPECT_EQ(LimitAfterInit("700"), 700U); }

TEST(DescriptorLimit, StaysIfTheSettingIsZeroOrLower) {
  EXPECT_EQ(LimitAfterInit("0"), kSoft);
  EXPECT_EQ(LimitAfterInit("200"), kSoft);
}

// Communicators that are aborted while they connect: NCCL makes no more calls, closes what it has
// and calls finalize. No resource may stay in the process.

constexpr int kCommunicators = 50;

ptrdiff_t Entries(const char* path) {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator(path, error), {});
}

struct Held {
  ptrdiff_t descriptors = Entries("/proc/self/fd");
  ptrdiff_t threads = Entries("/proc/self/task");
};

// The kernel may still list a thread for a moment after it was joined.
void ExpectNoMoreThan(const Held& before) {
  for (int i = 0; i < 10'000 && Held().threads > before.threads; ++i) usleep(1000);
  const Held after;
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
}

enum class Abort { kListenerClosed, kListenerLeft, kPeerAccepting };

class AbortedCommunicator : public testing::TestWithParam<Abort> {
 protected:
  AbortedCommunicator() {
    // The thread sanitizer starts a thread of its own with the first thread of a process.
    std::thread([] {}).join();
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    library_ = dlopen(NET_PLUGIN, RTLD_NOW);
    EXPECT_NE(library_, nullptr) << dlerror();
    if (library_ == nullptr) return;
    net_ = static_cast<const abi::NetV11*>(dlsym(library_, "ncclNetPlugin_v11"));
  }

  // Runs a communicator from init to finalize; its connects are never completed.
  void Run() const {
    void* context = nullptr;
    abi::NetCommConfig config = {abi::kNetUndefined};
    ASSERT_EQ(net_->init(&context, 0, &config, Silent, nullptr), abi::kSuccess);
    int devices = 0;
    ASSERT_EQ(net_->devices(&devices), abi::kSuccess);
    ASSERT_GE(devices, 1);
    std::array<std::byte, abi::kNetHandleBytes> handle = {};
    void* listener = nullptr;
    ASSERT_EQ(net_->listen(context, 0, handle.data(), &listener), abi::kSuccess);
    void* sender = nullptr;
    void* receiver = nullptr;
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(net_->connect(context, 0, handle.data(), &sender, nullptr), abi::kSuccess);
      ASSERT_EQ(sender, nullptr) << "nobody has accepted";
      usleep(200);
    }
    if (GetParam() == Abort::kPeerAccepting) {
      // Another connect of the same communicator: the acceptor now has two incomplete connections.
      std::array<std::byte, abi::kNetHandleBytes> other = handle;
      for (size_t i = abi::kNetHandleBytes - 8; i < other.size(); ++i) other[i] = std::byte{0};
      ASSERT_EQ(net_->connect(context, 0, other.data(), &sender, nullptr), abi::kSuccess);
      ASSERT_EQ(net_->accept(listener, &receiver, nullptr), abi::kSuccess);
    }
    if (receiver != nullptr) {
      ASSERT_EQ(net_->close_recv(receiver), abi::kSuccess);
    }
    if (GetParam() != Abort::kListenerLeft) {
      ASSERT_EQ(net_->close_listen(listener), abi::kSuccess);
    }
    ASSERT_EQ(net_->finalize(context), abi::kSuccess);
    // Closing the listener after finalize must be allowed.
    if (GetParam() == Abort::kListenerLeft) {
      ASSERT_EQ(net_->close_listen(listener), abi::kSuccess);
    }
  }

  void* library_ = nullptr;
  const abi::NetV11* net_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Ways, AbortedCommunicator,
                         testing::Values(Abort::kListenerClosed, Abort::kListenerLeft,
                                         Abort::kPeerAccepting),
                         [](const testing::TestParamInfo<Abort>& how) {
                           switch (how.param) {
                             case Abort::kListenerClosed:
                               return "ListenerClosed";
                             case Abort::kListenerLeft:
                               return "ListenerLeft";
                             case Abort::kPeerAccepting:
                               return "PeerAccepting";
                           }
                           return "";
                         });

TEST_P(AbortedCommunicator, LeavesNoDescriptorAndNoThread) {
  ASSERT_NE(net_, nullptr);
  const Held before;
  for (int i = 0; i < kCommunicators && !HasFatalFailure(); ++i) Run();
  ExpectNoMoreThan(before);
}

TEST_P(AbortedCommunicator, HasNothingLeftWhenFinalizeReturns) {
  ASSERT_NE(net_, nullptr);
  const Held before;
  Run();
  ExpectNoMoreThan(before);
}

}  // namespace
}  // namespace nccltune::net
