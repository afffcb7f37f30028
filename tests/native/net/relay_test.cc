// SPDX-License-Identifier: Apache-2.0
// Connections through a network that delays, closes, resets, truncates and stalls them. Either
// every byte arrives, or an error names the peer, the device and the outstanding bytes.
#include "common/text.h"
#include "net/clock.h"
#include "net/link.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "net/socket.h"
#include "testing.h"

namespace nccltune::net {
namespace {

void Reset(Descriptor& socket) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket.Close();
}

// Like the buffer of a switch: further data stays with the sender.
constexpr size_t kMostWaiting = 1 << 20;

// A relay between the two ends of a connection that simulates a network: it delays, drops and
// truncates data.
class Relay {
 public:
  enum class Fault {
    kEnd,       // closes both directions, after delivering the data in flight
    kReset,     // resets both directions immediately
    kTruncate,  // delivers half of the next forward data, then closes
    kStall,     // stops reading silently
  };

  // Each connection to the relay is forwarded to `to`.
  explicit Relay(const SocketEndpoint& to) : to_(to) {
    SocketResult opened = ListenOn(Loopback().nics.front(), {});
    EXPECT_EQ(opened.error, 0) << ErrorWords(opened.error);
    listening_ = std::move(opened.socket);
    end_ = LocalEnd(listening_.fd());
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const SocketEndpoint& end() const { return end_; }
  // Delays every byte, in both directions.
  void SetDelay(int64_t ns) { delay_ns_ = ns; }
  // Returns the number of open connections.
  size_t size() const { return size_; }
  // Applies a fault to a connection, counted from the oldest open one. Returns false if there are
  // fewer.
  bool Befall(size_t connection, Fault fault) {
    const std::scoped_lock lock(mutex_);
    for (Pair& pair : pairs_) {
      if (pair.over || pair.stalled || connection-- != 0) continue;
      Befall(pair, fault);
      return true;
    }
    return false;
  }
  void BefallAll(Fault fault) {
    const std::scoped_lock lock(mutex_);
    for (Pair& pair : pairs_) {
      if (!pair.over) Befall(pair, fault);
    }
  }
  // Refuses connections from now on.
  void StopListening() {
    const std::scoped_lock lock(mutex_);
    listening_.Close();
  }

 private:
  struct Piece {
    int64_t due_ns = 0;
    std::vector<std::byte> bytes;
  };
  // One direction of a connection.
  struct Direction {
    std::deque<Piece> pieces;
    size_t waiting = 0;  // bytes in them
    bool ended = false;  // the end was read
    bool shut = false;   // the end was passed on
  };
  struct Pair {
    Descriptor near;
    Descriptor far;
    Direction forward;
    Direction backward;
    bool truncates = false;
    bool stalled = false;
    bool over = false;
  };

  void Run() {
    while (!stop_) Turn();
  }
  void Turn() {
    std::vector<pollfd> watched;
    {
      const std::scoped_lock lock(mutex_);
      AcceptAll();
      for (Pair& pair : pairs_) {
        if (pair.over || pair.stalled) continue;
        Pass(pair, pair.near, pair.far, pair.forward);
        if (!pair.over) Pass(pair, pair.far, pair.near, pair.backward);
        if (pair.over) continue;
        const auto events = [](const Direction& in, const Direction& out) {
          const bool reads = !in.ended && in.waiting < kMostWaiting;
          return static_cast<short>((reads ? POLLIN : 0) | (out.waiting != 0 ? POLLOUT : 0));
        };
        watched.push_back({pair.near.fd(), events(pair.forward, pair.backward), 0});
        watched.push_back({pair.far.fd(), events(pair.backward, pair.forward), 0});
      }
      std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
      size_ = pairs_.size();
      if (listening_) watched.push_back({listening_.fd(), POLLIN, 0});
    }
    // Delayed data keeps its socket ready all the time, so check once per millisecond.
    if (delay_ns_ != 0) watched.clear();
    poll(watched.data(), watched.size(), 1);
  }
  void AcceptAll() {
    while (listening_) {
      SocketResult near = AcceptOne(listening_.fd(), -1);
      if (!near.socket) return;
      SocketResult far = StartConnecting(Loopback().nics.front(), to_, -1);
      pollfd watched = {far.socket.fd(), POLLOUT, 0};
      // Over loopback, connect completes or fails immediately.
      if (!far.socket || poll(&watched, 1, 1000) != 1) continue;
      if (ConnectResult(far.socket.fd()) != 0) continue;
      Pair& pair = pairs_.emplace_back();
      pair.near = std::move(near.socket);
      pair.far = std::move(far.socket);
    }
  }
  void Pass(Pair& pair, Descriptor& from, Descriptor& to, Direction& way) {
    const bool forward = &way == &pair.forward;
    while (!way.ended && way.waiting < kMostWaiting) {
      std::array<std::byte, 1 << 16> bytes;
      iovec part = {bytes.data(), bytes.size()};
      const IoResult moved = ReadSome(from.fd(), {&part, 1});
      if (moved.would_block()) break;
      if (moved.error != 0) return Befall(pair, Fault::kReset);
      size_t kept = moved.bytes;
      if (kept == 0) way.ended = true;
      if (forward && pair.truncates && kept != 0) {
        kept /= 2;
        way.ended = pair.backward.ended = true;
      }
      if (kept == 0) break;
      way.waiting += kept;
      const auto end = bytes.begin() + static_cast<ptrdiff_t>(kept);
      way.pieces.push_back({NowNs() + delay_ns_, {bytes.begin(), end}});
    }
    while (!way.pieces.empty() && way.pieces.front().due_ns <= NowNs()) {
      std::vector<std::byte>& bytes = way.pieces.front().bytes;
      iovec part = {bytes.data(), bytes.size()};
      const IoResult moved = WriteSome(to.fd(), {&part, 1});
      if (moved.would_block()) return;
      if (moved.error != 0) return Befall(pair, Fault::kReset);
      way.waiting -= moved.bytes;
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(moved.bytes));
      if (bytes.empty()) way.pieces.pop_front();
    }
    if (!way.ended || !way.pieces.empty() || way.shut) return;
    shutdown(to.fd(), SHUT_WR);
    way.shut = true;
    pair.over = pair.forward.shut && pair.backward.shut;
  }
  static void Befall(Pair& pair, Fault fault) {
    switch (fault) {
      case Fault::kEnd:
        pair.forward.ended = pair.backward.ended = true;
        break;
      case Fault::kReset:
        Reset(pair.near);
        Reset(pair.far);
        pair.over = true;
        break;
      case Fault::kTruncate:
        pair.truncates = true;
        break;
      case Fault::kStall:
        pair.stalled = true;
        break;
    }
  }

  SocketEndpoint to_;
  SocketEndpoint end_;
  std::atomic<int64_t> delay_ns_ = 0;
  std::atomic<size_t> size_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Descriptor listening_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

using Fault = Relay::Fault;

NetSettings WithFourFlows(int timeout_s = 600) {
  NetSettings settings;
  settings.flows = 4;
  settings.timeout_s = timeout_s;
  return settings;
}

class RelayTest : public testing::Test {
 protected:
  RelayTest() { TakeLines(); }

  // Connects with all flows through the relay, including reconnecting ones.
  void Connect(const NetSettings& settings) {
    link_ = std::make_unique<Link>(settings);
    relay_ = std::make_unique<Relay>(link_->end());
    link_->JoinThrough(relay_->end());
    ASSERT_TRUE(link_->stands());
  }

  TransferRequest* SendSome(size_t bytes) {
    content_ = Content(bytes, 3);
    TransferRequest* request = link_->Send(content_);
    return request;
  }

  std::vector<std::byte> content_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Relay> relay_;
};

// What befalls flows while messages go on. The express flow connects first, so it is the oldest:
// number 0.
struct Befallen {
  const char* name;
  size_t messages;
  // Called after so many were received. Returns whether it befell a flow.
  bool (*between)(Relay& relay, size_t received) = nullptr;
  size_t least = 0;        // how often it must do so
  int64_t delay_ns = 0;    // of the way
  size_t small_bytes = 0;  // 0: a mix of small messages and messages that all flows share
};

template <Fault fault>
bool OneAfterAnother(Relay& relay, size_t received) {
  return received % 10 == 0 && relay.Befall(received / 10 % 5, fault);
}

template <Fault fault>
bool AllAtOnce(Relay& relay, size_t received) {
  if (received % 40 == 20) relay.BefallAll(fault);
  return received % 40 == 20;
}

// Stalls a flow that is this old, `times` times.
template <size_t flow, size_t times = 1>
bool Stalls(Relay& relay, size_t received) {
  const bool due = received >= 50 && received < 50 + 40 * times && (received - 50) % 40 == 0;
  return due && relay.Befall(flow, Fault::kStall);
}

constexpr Befallen kBefallen[] = {
    {.name = "ALongWay", .messages = 80, .delay_ns = 2 * kNsPerMs},
    {"EndOfOneAfterAnother", 120, OneAfterAnother<Fault::kEnd>, 3},
    {"ResetOfOneAfterAnother", 120, OneAfterAnother<Fault::kReset>, 3},
    {"TruncationOfOneAfterAnother", 120, OneAfterAnother<Fault::kTruncate>, 3},
    {"EndOfAllFarAway", 80, AllAtOnce<Fault::kEnd>, 2, kNsPerMs},
    {"ResetOfAllFarAway", 80, AllAtOnce<Fault::kReset>, 2, kNsPerMs},
    {"TruncationOfAllFarAway", 80, AllAtOnce<Fault::kTruncate>, 2, kNsPerMs},
    // Other flows resend the data of a stalled flow, and it gets no more.
    {"StallOfABulkFlow", 120, Stalls<1>, 1},
    {"StallOfSeveralBulkFlows", 240, Stalls<1, 3>, 3},
    {"StallOfTheExpressFlow", 400, Stalls<0>, 1, 0, 900},
};

class RelayFaultTest : public RelayTest, public testing::WithParamInterface<Befallen> {};

INSTANTIATE_TEST_SUITE_P(Flows, RelayFaultTest, testing::ValuesIn(kBefallen),
                         [](const auto& each) { return std::string(each.param.name); });

TEST_P(RelayFaultTest, MessagesGoOn) {
  const Befallen& befallen = GetParam();
  Connect(WithFourFlows());
  link_->CloseListener();
  relay_->SetDelay(befallen.delay_ns);
  Plan plan = {.sizes = {}, .slack = 16};
  for (size_t i = 0; i < befallen.messages; ++i) {
    const size_t mixed = i % 4 == 0 ? 300 + i : 2000 * (i % 200);
    plan.sizes.push_back(befallen.small_bytes == 0 ? mixed : befallen.small_bytes);
  }
  size_t count = 0;
  plan.between = [&](size_t received) {
    if (befallen.between != nullptr && befallen.between(*relay_, received)) ++count;
  };
  EXPECT_TRUE(Exchange(*link_, plan));
  EXPECT_GE(count, befallen.least);
  if (befallen.small_bytes != 0) {
    EXPECT_TRUE(link_->sender->express_late());
  }
  EXPECT_FALSE(HasLine(TakeLines(), {"WARN"}));
}

// Small messages are copied, so their requests complete before they are delivered.
TEST_F(RelayTest, WhenAllStallTheSenderReportsIt) {
  for (const size_t bytes : {size_t{32} << 20, size_t{1} << 10}) {
    Connect(WithFourFlows(3));
    ASSERT_TRUE(Exchange(*link_, {.sizes = {1, 1 << 20}}));
    relay_->BefallAll(Fault::kStall);
    const std::vector<std::byte> content = Content(bytes, 3);
    EXPECT_TRUE(Until([&] {
      TransferRequest* request = nullptr;
      const abi::Result sent = Send(link_->sender, content.data(), bytes, &request);
      return (sent == abi::kSuccess && request != nullptr ? Finish(request).result : sent) ==
             abi::kRemoteError;
    }));
    EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + relay_->end().Name(), "on lo",
                                      bytes == 32 << 20 ? "33554432 bytes" : " bytes",
                                      "nothing was delivered for 3 s"}));
    link_.reset();
  }
}

TEST_F(RelayTest, WhenAllAreLostForGoodBothEndsReportIt) {
  Connect(WithFourFlows());
  link_->CloseListener();
  ASSERT_TRUE(Exchange(*link_, {.sizes = {1, 1 << 20}}));
  std::vector<std::byte> buffer(1000);
  TransferRequest* receive = link_->Receive(&buffer);
  relay_->BefallAll(Fault::kStall);
  TransferRequest* const send = SendSome(8 << 20);
  relay_->StopListening();
  relay_->BefallAll(Fault::kReset);
  EXPECT_EQ(Finish(send).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "sending to " + relay_->end().Name(), "on lo",
                                    "8388608 bytes outstanding"}));
  // A receiver waits ten seconds for flows to reconnect.
  EXPECT_TRUE(Until([&] {
    bool done = false;
    link_->receiver->Tick(NowNs() + 11 * kNsPerSecond);
    return nccltune::net::Test(receive, &done, nullptr) != abi::kSuccess || done;
  }));
  EXPECT_EQ(Finish(receive).result, abi::kRemoteError);
  EXPECT_TRUE(HasLine(TakeLines(), {"WARN", "receiving from 127.0.0.1:", "on lo",
                                    "1000 bytes outstanding", "no flow for 10 s"}));
}

}  // namespace
}  // namespace nccltune::net
