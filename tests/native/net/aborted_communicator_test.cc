// SPDX-License-Identifier: Apache-2.0
// Communicators that are aborted while they connect: NCCL makes no more calls, closes what it has
// and calls finalize. No resource may stay in the process.
#include <dirent.h>

#include "abi/net.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int kCommunicators = 50;

size_t Entries(const char* path) {
  DIR* const folder = opendir(path);
  if (folder == nullptr) return 0;
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

struct Held {
  size_t descriptors = Entries("/proc/self/fd");
  size_t threads = Entries("/proc/self/task");
};

// The kernel may still list a thread for a moment after it was joined.
void ExpectNoMoreThan(const Held& before) {
  for (int i = 0; i < 1000 && Held().threads > before.threads; ++i) usleep(1000);
  const Held after;
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
}

void Silent(abi::LogLevel /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
            const char* /*format*/, ...) {}

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
