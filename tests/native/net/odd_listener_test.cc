// SPDX-License-Identifier: Apache-2.0
// A connector whose listener is wrong: another release of the plugin, a foreign service, or one
// that disappears.
#include "common/text.h"
#include "net/link.h"
#include "net/sender.h"
#include "net/socket.h"
#include "net/transport.h"
#include "net/wire.h"
#include "testing.h"

namespace nccltune::net {
namespace {

class OddListenerTest : public testing::Test {
 protected:
  OddListenerTest() {
    TakeLines();
    SocketResult opened = ListenOn(Loopback().nics.front(), {});
    EXPECT_EQ(opened.error, 0) << ErrorWords(opened.error);
    listening_ = std::move(opened.socket);
    Invitation invitation;
    invitation.ends = {LocalEnd(listening_.fd())};
    WriteHandle(invitation, handle_);
  }

  abi::Result Dial() {
    Sender* sender = nullptr;
    const abi::Result result = Connect(ContextWith({}), Loopback(), handle_, &sender);
    EXPECT_EQ(sender, nullptr) << "nobody has welcomed it";
    return result;
  }

  // Waits for the next flow to connect.
  Descriptor AwaitFlow() {
    Descriptor flow;
    EXPECT_TRUE(Until([&] {
      EXPECT_EQ(Dial(), abi::kSuccess);
      flow = AcceptOne(listening_.fd(), -1).socket;
      return static_cast<bool>(flow);
    }));
    return flow;
  }

  static void SendBytes(const Descriptor& flow, std::span<const std::byte> bytes) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    EXPECT_EQ(WriteSome(flow.fd(), {&part, 1}).bytes, bytes.size());
  }

  // Checks that connect fails and logs these words.
  void ExpectRefusal(const std::vector<std::string>& words) {
    abi::Result result = abi::kSuccess;
    ASSERT_TRUE(Until([&] { return (result = Dial()) != abi::kSuccess; }));
    EXPECT_EQ(result, abi::kRemoteError);
    EXPECT_EQ(Dial(), abi::kRemoteError) << "it is final";
    const std::vector<std::string> lines = TakeLines();
    EXPECT_EQ(lines.size(), 1U) << "it is logged once";
    std::vector<std::string> all = {"WARN", "connect on lo to ", LocalEnd(listening_.fd()).Name()};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_TRUE(HasLine(lines, all)) << (lines.empty() ? "nothing" : lines.front());
  }

  Descriptor listening_;
  HandleArray handle_ = {};
};

using Refusing = std::pair<Welcome, std::vector<std::string>>;  // a welcome and the words logged

class RefusingListenerTest : public OddListenerTest,
                             public testing::WithParamInterface<Refusing> {};

const std::vector<std::string> kOtherRelease = {"release " + std::to_string(kWireRelease + 4),
                                                "ours " + std::to_string(kWireRelease),
                                                "install one version"};
INSTANTIATE_TEST_SUITE_P(
    Welcomes, RefusingListenerTest,
    testing::Values(Refusing{{kWireRelease + 4, WelcomeStatus::kOtherRelease}, kOtherRelease},
                    Refusing{{kWireRelease + 4, WelcomeStatus::kTaken}, kOtherRelease},
                    Refusing{{kWireRelease, WelcomeStatus::kUnknownConnection},
                             {"the peer has closed this connection"}}));

TEST_P(RefusingListenerTest, EndsTheAttemptWithAReason) {
  const Descriptor flow = AwaitFlow();
  SendBytes(flow, Encode(GetParam().first));
  ExpectRefusal(GetParam().second);
}

TEST_F(OddListenerTest, SomebodyElsesAnswer) {
  constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
  const Descriptor flow = AwaitFlow();
  SendBytes(flow, std::as_bytes(std::span(kAnswer)));
  ExpectRefusal({"the listener is not nccltune"});
}

TEST_F(OddListenerTest, OneThatGoesAwayIsDialledAgain) {
  // Closed in the middle of the welcome, and before it.
  const auto welcome = Encode(Welcome{});
  for (const size_t sent : {size_t{0}, kWelcomeBytes / 2}) {
    const Descriptor flow = AwaitFlow();
    if (sent != 0) SendBytes(flow, std::span(welcome).first(sent));
  }
  EXPECT_TRUE(AwaitFlow());
  EXPECT_TRUE(TakeLines().empty());
}

// A peer that was refused for its release must not block others.
TEST_F(OddListenerTest, AListenerThatRefusedAReleaseTakesTheNextConnection) {
  Link link;
  HandleArray handle = link.handle();
  Hello hello;
  hello.release = kWireRelease + 1;
  hello.token = ReadHandle(handle)->token;
  hello.flows = 2;
  Stranger old(link.end(), Encode(hello));
  ASSERT_TRUE(Until([&] { return old.Closed(); }));
  ASSERT_TRUE(old.Welcomed().has_value());
  EXPECT_EQ(old.Welcomed()->status, WelcomeStatus::kOtherRelease);
  link.Join();
  EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}}));
}

// A listener that welcomes a connection, reads its frames and acknowledges nothing.
class SilentListenerTest : public OddListenerTest {
 protected:
  static constexpr size_t kFlowsInAll = 3;  // the express flow and two bulk flows

  struct ReadFrame {
    uint64_t request = 0;
    std::vector<std::byte> body;
  };

  // Establishes a connection whose sender has all its flows.
  void Join(size_t eager_bytes = 4000) {
    ConnectionContext context = ContextWith({});
    context.settings.flows = kFlowsInAll - 1;
    context.settings.eager_bytes = eager_bytes;
    size_t arrived = 0;
    ASSERT_TRUE(Until([&] {
      EXPECT_EQ(Connect(context, Loopback(), handle_, &sender_), abi::kSuccess);
      Descriptor flow = AcceptOne(listening_.fd(), -1).socket;
      if (flow) {
        std::vector<std::byte> bytes;
        EXPECT_TRUE(Until([&] {
          EXPECT_EQ(Connect(context, Loopback(), handle_, &sender_), abi::kSuccess);
          return Hear(flow, kHelloBytes, &bytes);
        }));
        const std::optional<Hello> hello = DecodeHello(std::span(bytes).first<kHelloBytes>());
        EXPECT_TRUE(hello.has_value());
        flows_.at(hello->flow) = std::move(flow);
        if (++arrived == kFlowsInAll) {
          for (const Descriptor& each : flows_) SendBytes(each, Encode(Welcome()));
        }
      }
      return sender_ != nullptr;
    }));
  }

  // Reads; returns true once `wanted` bytes have arrived in total.
  static bool Hear(const Descriptor& flow, size_t wanted, std::vector<std::byte>* bytes) {
    std::vector<std::byte> more(wanted - bytes->size());
    iovec part = {more.data(), more.size()};
    const IoResult moved = ReadSome(flow.fd(), {&part, 1});
    bytes->insert(bytes->end(), more.begin(), more.begin() + static_cast<ptrdiff_t>(moved.bytes));
    return bytes->size() == wanted;
  }

  static ReadFrame AwaitFrame(const Descriptor& flow) {
    std::vector<std::byte> bytes;
    EXPECT_TRUE(Until([&] { return Hear(flow, kDataHeaderBytes, &bytes); }));
    const std::optional<ForwardFrame> forward =
        DecodeForwardFrame(std::span(bytes).first<kDataHeaderBytes>());
    EXPECT_TRUE(forward && forward->type == FrameType::kData);
    if (!forward) return {};
    ReadFrame frame = {.request = forward->data.request, .body = {}};
    EXPECT_TRUE(Until([&] { return Hear(flow, forward->data.length, &frame.body); }));
    return frame;
  }

  // Returns a message that outlives the sender, which reads it until it is closed.
  const std::vector<std::byte>& Kept(size_t bytes, uint64_t seed) {
    return kept_.emplace_back(Content(bytes, seed));
  }

  ~SilentListenerTest() override { Close(sender_); }

  std::deque<std::vector<std::byte>> kept_;
  Sender* sender_ = nullptr;
  std::array<Descriptor, kFlowsInAll> flows_;
};

// A peer that has read a small message may not read again soon. So an eager message that is late is
// not resent by idle flows, but by all flows after two seconds without an acknowledgement.
TEST_F(SilentListenerTest, AnEagerMessageIsSentAgainOnlyWhenTheExpressFlowIsSilent) {
  Join();
  const std::vector<std::byte>& small = Kept(1000, 1);
  // A message of one chunk.
  const std::vector<std::byte>& large = Kept(8 << 10, 2);
  TransferRequest* request = nullptr;
  ASSERT_EQ(Send(sender_, small.data(), small.size(), &request), abi::kSuccess);
  ASSERT_EQ(Send(sender_, large.data(), large.size(), &request), abi::kSuccess);
  const ReadFrame express = AwaitFrame(flows_[0]);
  EXPECT_EQ(express.request, 0U);
  EXPECT_TRUE(express.body == small);
  // One bulk flow has the large message, and the idle one resends it.
  for (const size_t flow : {size_t{1}, size_t{2}}) {
    const ReadFrame first = AwaitFrame(flows_[flow]);
    EXPECT_EQ(first.request, 1U) << "flow " << flow;
    EXPECT_TRUE(first.body == large);
  }
  const Descriptor* again = nullptr;
  ASSERT_TRUE(Until([&] {
    for (const size_t flow : {size_t{1}, size_t{2}}) {
      std::byte next{};
      if (recv(flows_[flow].fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 1) again = &flows_[flow];
    }
    return again != nullptr;
  }));
  const ReadFrame copy = AwaitFrame(*again);
  EXPECT_EQ(copy.request, 0U);
  EXPECT_TRUE(copy.body == small);
}

// Eager messages are copied, so the memory that an unresponsive peer can make us keep is limited.
TEST_F(SilentListenerTest, UnacknowledgedEagerMessagesAreAtMost512KiB) {
  constexpr size_t kBytes = 16 << 10;
  Join(kBytes);
  const std::vector<std::byte>& small = Kept(kBytes, 1);
  for (size_t i = 0; i < kSlots; ++i) {
    TransferRequest* request = nullptr;
    ASSERT_EQ(Send(sender_, small.data(), kBytes, &request), abi::kSuccess);
    ASSERT_NE(request, nullptr);
    // A message of the express flow is complete at once. A bulk flow waits for an acknowledgement.
    bool done = false;
    ASSERT_EQ(nccltune::net::Test(request, &done, nullptr), abi::kSuccess);
    if (!done) break;
  }
  EXPECT_EQ(sender_->counters().eager, (512U << 10) / kBytes);
}

// The peer cannot have read a frame that is not completely written.
TEST_F(SilentListenerTest, AnAcknowledgementOfAFrameThatIsBeingWrittenEndsTheFlow) {
  Join();
  // Buffers that hold less than a frame. Those whose sizes are set do not grow.
  const int room = 8 << 10;
  for (const int fd : SocketsTo(LocalEnd(listening_.fd()))) {
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
  }
  for (const Descriptor& flow : flows_) {
    ASSERT_EQ(setsockopt(flow.fd(), SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
  }
  const std::vector<std::byte>& large = Kept(4 << 20, 2);
  TransferRequest* request = nullptr;
  ASSERT_EQ(Send(sender_, large.data(), large.size(), &request), abi::kSuccess);
  ASSERT_TRUE(Until([&] {
    std::byte next{};
    return recv(flows_[1].fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }));
  EXPECT_EQ(sender_->counters().flow_ends, 0U);
  SendBytes(flows_[1], Encode(ReverseFrame{FrameType::kAck, 1}));
  EXPECT_TRUE(Until([&] { return sender_->counters().flow_ends == 1; }));
}

}  // namespace
}  // namespace nccltune::net
