// SPDX-License-Identifier: Apache-2.0
// Processes with few file descriptors: a connection has fewer flows, or fails with a message that
// states how to raise the limit.
#include "net/descriptors.h"
#include "net/clock.h"
#include "net/link.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int kWantedFlows = 8;
// Limits range from fewer than the process has open to more than the test needs.
constexpr int kLowestLimit = 4;
constexpr int kHighestLimit = 420;
constexpr int kEachUpTo = 90;  // above this, limits grow in larger steps

// The result of a process, and its exit code.
enum ChildResult : int {
  kAllFlows = 10,
  kFewerFlows = 11,
  kError = 12,
  kBroken = 13,
};

NetSettings EightFlows() {
  NetSettings settings;
  settings.flows = kWantedFlows;
  settings.threads = 4;
  return settings;
}

void SetLimit(int limit) {
  const rlimit both = {static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
  if (setrlimit(RLIMIT_NOFILE, &both) != 0) _exit(kBroken);
}

pid_t Start(const std::function<ChildResult()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  // Longer than Until waits.
  alarm(300);
  const ChildResult outcome = body();
  _exit(testing::Test::HasFailure() ? kBroken : outcome);
}

ChildResult Await(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? static_cast<ChildResult>(WEXITSTATUS(status)) : kBroken;
}

ChildResult InChild(const std::function<ChildResult()>& body) { return Await(Start(body)); }

// Returns the result of the limited process.
ChildResult Judge(bool works, size_t flows) {
  const std::vector<std::string> lines = TakeLines();
  const bool explained = HasLine(lines, {"WARN", "ulimit -n"});
  if (works && flows == kWantedFlows + 1) return kAllFlows;
  if (!explained) {
    for (const std::string& line : lines) ADD_FAILURE() << line;
    return kBroken;
  }
  return works ? kFewerFlows : kError;
}

std::vector<int> Limits() {
  std::vector<int> limits;
  for (int limit = kLowestLimit; limit <= kHighestLimit; limit += limit < kEachUpTo ? 1 : 30) {
    limits.push_back(limit);
  }
  return limits;
}

// Runs `body` at every limit. Each run must give a result: an error at the lowest limit, all flows
// at the highest, and fewer flows at some limit between.
void AtEveryLimit(const std::function<ChildResult(int limit)>& body) {
#ifdef NCCLTUNE_SANITIZED
  GTEST_SKIP() << "the sanitizer's checks need file descriptors of their own";
#endif
  std::vector<int> seen(kBroken + 1, 0);
  ChildResult last = kBroken;
  for (const int limit : Limits()) {
    last = body(limit);
    ASSERT_NE(last, kBroken) << "limit " << limit;
    ASSERT_GE(last, kAllFlows) << "limit " << limit;
    ++seen[last];
  }
  EXPECT_EQ(last, kAllFlows);
  EXPECT_GT(seen[kError], 0);
  EXPECT_GT(seen[kFewerFlows], 0);
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void Write(const HandleArray& handle) const {
    EXPECT_EQ(write(ends_[1], handle.data(), handle.size()), static_cast<ssize_t>(handle.size()));
  }
  bool Read(HandleArray* handle) const {
    return read(ends_[0], handle->data(), handle->size()) == static_cast<ssize_t>(handle->size());
  }

 private:
  std::array<int, 2> ends_ = {};
};

// Both ends are in one process and compete for descriptors.
ChildResult ConnectToOurselves() {
  const ConnectionContext context = ContextWith(EightFlows());
  const int before = CountOpen();
  Listener* listener = nullptr;
  Sender* sender = nullptr;
  Receiver* receiver = nullptr;
  HandleArray handle = {};
  abi::Result result = Listen(context, Loopback(), handle, &listener);
  EXPECT_TRUE(Until([&] {
    if (result == abi::kSuccess && sender == nullptr) {
      result = Connect(context, Loopback(), handle, &sender);
    }
    if (result == abi::kSuccess && receiver == nullptr) result = Accept(listener, &receiver);
    return result != abi::kSuccess || (sender != nullptr && receiver != nullptr);
  }));
  const bool works = sender != nullptr && receiver != nullptr;
  const size_t flows = works ? sender->flows() : 0;
  if (works) {
    EXPECT_EQ(receiver->flows(), flows);
    const std::vector<std::byte> content = Content(300'000, 1);
    std::vector<std::byte> buffer(content.size());
    TransferRequest* send = nullptr;
    TransferRequest* receive = nullptr;
    EXPECT_EQ(Send(sender, content.data(), content.size(), &send), abi::kSuccess);
    EXPECT_EQ(Receive(receiver, buffer.data(), buffer.size(), &receive), abi::kSuccess);
    EXPECT_EQ(Finish(send).result, abi::kSuccess);
    EXPECT_EQ(Finish(receive).result, abi::kSuccess);
    EXPECT_EQ(buffer, content);
  }
  Close(sender);
  Close(receiver);
  Close(listener);
  ReleaseForgotten(NowNs() + 3600 * kNsPerSecond);
  EXPECT_TRUE(Until([&] { return CountOpen() <= before; })) << CountOpen() << " not " << before;
  return Judge(works, flows);
}

TEST(Descriptors, OneProcessWorksOrFailsAtEveryLimit) {
  AtEveryLimit([](int limit) {
    return InChild([&] {
      SetLimit(limit);
      return ConnectToOurselves();
    });
  });
}

enum class Side { kConnector, kAcceptor };
constexpr size_t kMessageBytes = 300'000;

ChildResult PlayConnector(const Pipe& handles, bool limited) {
  HandleArray handle = {};
  if (!handles.Read(&handle)) return kBroken;
  const int before = CountOpen();
  const ConnectionContext context = ContextWith(EightFlows());
  Sender* sender = nullptr;
  EXPECT_TRUE(Until([&] {
    return Connect(context, Loopback(), handle, &sender) != abi::kSuccess || sender != nullptr;
  }));
  const bool works = sender != nullptr;
  const size_t flows = works ? sender->flows() : 0;
  if (works) {
    const std::vector<std::byte> content = Content(kMessageBytes, 1);
    TransferRequest* send = nullptr;
    EXPECT_EQ(Send(sender, content.data(), kMessageBytes, &send), abi::kSuccess);
    EXPECT_EQ(Finish(send).result, abi::kSuccess);
  }
  Close(sender);
  ReleaseForgotten(NowNs() + 3600 * kNsPerSecond);
  EXPECT_TRUE(Until([&] { return CountOpen() <= before; }));
  if (limited) return Judge(works, flows);
  return !works ? kError : flows == kWantedFlows + 1 ? kAllFlows : kFewerFlows;
}

ChildResult PlayAcceptor(const Pipe& handles, bool limited) {
  const int before = CountOpen();
  const ConnectionContext context = ContextWith(EightFlows());
  Listener* listener = nullptr;
  Receiver* receiver = nullptr;
  HandleArray handle = {};
  if (Listen(context, Loopback(), handle, &listener) != abi::kSuccess) return Judge(false, 0);
  handles.Write(handle);
  EXPECT_TRUE(
      Until([&] { return Accept(listener, &receiver) != abi::kSuccess || receiver != nullptr; }));
  const bool works = receiver != nullptr;
  const size_t flows = works ? receiver->flows() : 0;
  if (works) {
    std::vector<std::byte> buffer(kMessageBytes);
    TransferRequest* receive = nullptr;
    EXPECT_EQ(Receive(receiver, buffer.data(), kMessageBytes, &receive), abi::kSuccess);
    EXPECT_EQ(Finish(receive).result, abi::kSuccess);
    EXPECT_EQ(buffer, Content(kMessageBytes, 1));
  }
  Close(receiver);
  Close(listener);
  EXPECT_TRUE(Until([&] { return CountOpen() <= before; }));
  if (limited) return Judge(works, flows);
  return !works ? kError : flows == kWantedFlows + 1 ? kAllFlows : kFewerFlows;
}

// Two processes, one of them with the limit.
ChildResult RunPair(Side side, int limit) {
  const Pipe handles;
  TakeLines();
  const auto play = [&](Side played) {
    return Start([&, played] {
      if (played == side) SetLimit(limit);
      return played == Side::kConnector ? PlayConnector(handles, played == side)
                                        : PlayAcceptor(handles, played == side);
    });
  };
  const Side other = side == Side::kConnector ? Side::kAcceptor : Side::kConnector;
  const pid_t free = play(other);
  const ChildResult outcome = Await(play(side));
  // In a job, an error of NCCL also ends the other process.
  if (outcome == kError) kill(free, SIGKILL);
  const ChildResult of_free = Await(free);
  if (outcome != kError) {
    EXPECT_EQ(of_free, outcome) << "both have the same number of flows";
  }
  return outcome;
}

TEST(Descriptors, AnAcceptorWorksOrFailsAtEveryLimit) {
  AtEveryLimit([](int limit) { return RunPair(Side::kAcceptor, limit); });
}

TEST(Descriptors, AConnectorWorksOrFailsAtEveryLimit) {
  AtEveryLimit([](int limit) { return RunPair(Side::kConnector, limit); });
}

TEST(Descriptors, ALimitIsRaisedAsFarAsAllowedAndNeverLowered) {
  EXPECT_EQ(InChild([] {
              const rlimit low = {.rlim_cur = 100, .rlim_max = 200};
              EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
              EXPECT_EQ(RaiseDescriptorLimit(50), 0U);
              EXPECT_EQ(ReadDescriptorUse().limit, 100U);
              EXPECT_EQ(RaiseDescriptorLimit(150), 150U);
              EXPECT_EQ(ReadDescriptorUse().limit, 150U);
              EXPECT_EQ(RaiseDescriptorLimit(65'536), 200U) << "the hard limit";
              EXPECT_EQ(RaiseDescriptorLimit(65'536), 0U);
              EXPECT_EQ(ReadDescriptorUse().limit, 200U);
              return kAllFlows;
            }),
            kAllFlows);
}

TEST(Descriptors, AreCounted) {
  const uint64_t before = ReadDescriptorUse().used;
  const SpareDescriptor one;
  const SpareDescriptor another;
  EXPECT_EQ(ReadDescriptorUse().used, before + 2);
}

TEST(Descriptors, OneConnectionTakesASixteenthOfWhatIsFree) {
  EXPECT_EQ(InChild([] {
              const auto used = static_cast<int>(ReadDescriptorUse().used);
              SetLimit(used + 16 * 5);
              EXPECT_EQ(DescriptorShare(9, 2), 5U);
              EXPECT_EQ(DescriptorShare(3, 2), 3U);
              SetLimit(used + 16);
              EXPECT_EQ(DescriptorShare(9, 2), 2U);
              EXPECT_EQ(DescriptorShare(1, 2), 1U);
              return kAllFlows;
            }),
            kAllFlows);
}

}  // namespace
}  // namespace nccltune::net
