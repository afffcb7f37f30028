// SPDX-License-Identifier: Apache-2.0
//
// A connector before a listener that is not what it should be: another release of ours, somebody
// else's port, or one that goes away.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/link.h"
#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {
namespace {

class OddListenerTest : public testing::Test {
 protected:
  OddListenerTest() {
    TakeLines();
    Opened opened = ListenOn(Loopback().nics.front(), {});
    EXPECT_EQ(opened.error, 0) << ErrorWords(opened.error);
    listening_ = std::move(opened.socket);
    Invitation invitation;
    invitation.ends = {LocalEnd(listening_.fd())};
    WriteHandle(invitation, handle_);
  }

  abi::Result Dial() {
    Sender* sender = nullptr;
    const abi::Result result = Connect(SurroundingsWith({}), Loopback(), handle_, &sender);
    EXPECT_EQ(sender, nullptr) << "nobody has welcomed it";
    return result;
  }

  // The flow that is dialled next, once it is there.
  Socket AwaitFlow() {
    Socket flow;
    EXPECT_TRUE(Until([&] {
      EXPECT_EQ(Dial(), abi::kSuccess);
      flow = AcceptOne(listening_.fd(), -1).socket;
      return flow.open();
    }));
    return flow;
  }

  static void Say(const Socket& flow, std::span<const std::byte> bytes) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    EXPECT_EQ(WriteSome(flow.fd(), {&part, 1}).bytes, bytes.size());
  }

  // What connect comes to, and what it says.
  void ExpectRefusal(const std::vector<std::string>& words) {
    abi::Result result = abi::kSuccess;
    ASSERT_TRUE(Until([&] { return (result = Dial()) != abi::kSuccess; }));
    EXPECT_EQ(result, abi::kRemoteError);
    EXPECT_EQ(Dial(), abi::kRemoteError) << "it is final";
    const std::vector<std::string> lines = TakeLines();
    EXPECT_EQ(lines.size(), 1U) << "it is said once";
    std::vector<std::string> all = {"WARN", "connect on lo to ", LocalEnd(listening_.fd()).Name()};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_TRUE(HasLine(lines, all)) << (lines.empty() ? "nothing" : lines.front());
  }

  Socket listening_;
  HandleArray handle_ = {};
};

TEST_F(OddListenerTest, AnotherReleaseThatRefusesUs) {
  const Socket flow = AwaitFlow();
  Say(flow, Encode(Welcome{kWireRelease + 4, Verdict::kOtherRelease}));
  ExpectRefusal({"release " + std::to_string(kWireRelease + 4),
                 "ours " + std::to_string(kWireRelease), "install one version"});
}

TEST_F(OddListenerTest, AnotherReleaseThatWouldTakeUs) {
  const Socket flow = AwaitFlow();
  Say(flow, Encode(Welcome{kWireRelease + 4, Verdict::kTaken}));
  ExpectRefusal({"release " + std::to_string(kWireRelease + 4),
                 "ours " + std::to_string(kWireRelease), "install one version"});
}

TEST_F(OddListenerTest, AConnectionThatItDoesNotKnow) {
  const Socket flow = AwaitFlow();
  Say(flow, Encode(Welcome{kWireRelease, Verdict::kUnknownConnection}));
  ExpectRefusal({"the peer has closed this connection"});
}

TEST_F(OddListenerTest, SomebodyElsesAnswer) {
  constexpr std::string_view kAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
  const Socket flow = AwaitFlow();
  Say(flow, std::as_bytes(std::span(kAnswer)));
  ExpectRefusal({"what listens there is not nccltune"});
}

TEST_F(OddListenerTest, OneThatGoesAwayIsDialledAgain) {
  // In the middle of its welcome, and before it.
  const auto welcome = Encode(Welcome{});
  for (const size_t said : {size_t{0}, kWelcomeBytes / 2}) {
    const Socket flow = AwaitFlow();
    if (said != 0) Say(flow, std::span(welcome).first(said));
  }
  EXPECT_TRUE(AwaitFlow().open());
  EXPECT_TRUE(TakeLines().empty());
}

// Who was refused for its release stands in nobody's way.
TEST_F(OddListenerTest, AListenerThatRefusedAReleaseTakesTheNextConnection) {
  Link link;
  ASSERT_TRUE(link.stands());
  HandleArray handle = link.handle();
  Hello hello;
  hello.release = kWireRelease + 1;
  hello.token = ReadHandle(handle)->token;
  hello.flows = 2;
  Opened old = StartConnecting(Loopback().nics.front(), link.end(), -1);
  ASSERT_TRUE(Until([&] { return ConnectResult(old.socket.fd()) == 0; }));
  Say(old.socket, Encode(hello));
  std::vector<std::byte> heard;
  ASSERT_TRUE(Until([&] {
    std::array<std::byte, kWelcomeBytes> bytes{};
    iovec part = {bytes.data(), bytes.size()};
    const Moved moved = ReadSome(old.socket.fd(), {&part, 1});
    heard.insert(heard.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(moved.bytes));
    return !moved.later() && moved.bytes == 0;
  }));
  ASSERT_EQ(heard.size(), kWelcomeBytes);
  const std::optional<Welcome> welcome = DecodeWelcome(std::span(heard).first<kWelcomeBytes>());
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->verdict, Verdict::kOtherRelease);
  EXPECT_EQ(welcome->release, kWireRelease);
  EXPECT_TRUE(
      HasLine(TakeLines(), {"WARN", "127.0.0.1", "release " + std::to_string(kWireRelease + 1),
                            "this is " + std::to_string(kWireRelease)}));
  link.Join();
  EXPECT_TRUE(Exchange(link, {.sizes = {1, 1 << 20}}));
}

}  // namespace
}  // namespace nccltune::net
