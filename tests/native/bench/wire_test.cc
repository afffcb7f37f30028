// SPDX-License-Identifier: Apache-2.0
#include "bench/wire.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "bench/support.h"

namespace nccltune::bench {
namespace {

using std::chrono::seconds;

// Returns the bytes that a wire sends for the message.
std::string BytesOf(MessageType type, const std::string& payload) {
  Sockets sockets = SocketPair();
  Wire wire(std::move(sockets.a));
  wire.Send(type, payload);
  return ReadSome(sockets.b.fd(), 5 + payload.size());
}

TEST(Wire, MessagesArriveCompleteAndInOrder) {
  Sockets sockets = SocketPair();
  Wire a(std::move(sockets.a));
  Wire b(std::move(sockets.b));
  a.Send(MessageType::kStep, "one");
  a.Send(MessageType::kQuit, "");
  a.Send(MessageType::kHeartbeat, "");
  a.Send(MessageType::kGather, std::string("\0\n\xff", 3));
  std::vector<Message> messages;
  b.Receive(&messages);
  ASSERT_EQ(messages.size(), 3U);  // heartbeats are not in the list
  EXPECT_EQ(messages[0].type, MessageType::kStep);
  EXPECT_EQ(messages[0].payload, "one");
  EXPECT_EQ(messages[1].type, MessageType::kQuit);
  EXPECT_EQ(messages[2].payload, std::string("\0\n\xff", 3));
  EXPECT_TRUE(b.broken().empty());
}

TEST(Wire, AMessageMayComeByteByByte) {
  Sockets sockets = SocketPair();
  Wire wire(std::move(sockets.a));
  const std::string bytes = BytesOf(MessageType::kStep, "payload");
  std::vector<Message> messages;
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_TRUE(messages.empty());
    WriteAll(sockets.b.fd(), bytes.substr(i, 1));
    wire.Receive(&messages);
  }
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].payload, "payload");
}

TEST(Wire, SendingNeverWaits) {
  Sockets sockets = SocketPair();
  Wire a(std::move(sockets.a));
  Wire b(std::move(sockets.b));
  const std::string large(size_t{8} << 20, 'x');
  a.Send(MessageType::kGathered, large);
  EXPECT_TRUE(a.wants_to_send());
  std::vector<Message> messages;
  ASSERT_TRUE(Eventually([&] {
    a.Flush();
    b.Receive(&messages);
    return !messages.empty();
  }));
  EXPECT_FALSE(a.wants_to_send());
  EXPECT_EQ(messages[0].payload, large);
}

TEST(Wire, GarbageBreaksIt) {
  const std::string garbage[] = {std::string("\0\0\0\0\0", 5),    // an invalid type
                                 std::string("\0\0\0\0\xff", 5),  // another invalid type
                                 // Larger than any valid message.
                                 std::string("\xff\xff\xff\xff\x01", 5)};
  for (const std::string& bytes : garbage) {
    Sockets sockets = SocketPair();
    Wire wire(std::move(sockets.a));
    WriteAll(sockets.b.fd(), BytesOf(MessageType::kStep, "good") + bytes);
    std::vector<Message> messages;
    wire.Receive(&messages);
    EXPECT_EQ(messages.size(), 1U);
    EXPECT_EQ(wire.broken(), "received bytes that are not a message of nccltune-bench");
    wire.Receive(&messages);
    EXPECT_EQ(messages.size(), 1U);
  }
}

TEST(Wire, LastWordsAreHeard) {
  Sockets sockets = SocketPair();
  Wire wire(std::move(sockets.a));
  WriteAll(sockets.b.fd(), BytesOf(MessageType::kLeaving, "bye") + "half");
  sockets.b.Close();
  // The peer has closed the connection, but the messages it sent before must still be received.
  wire.Send(MessageType::kStep, "too late");
  wire.Send(MessageType::kStep, "too late");
  EXPECT_FALSE(wire.wants_to_send());
  std::vector<Message> messages;
  wire.Receive(&messages);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].payload, "bye");
  wire.Receive(&messages);
  EXPECT_EQ(messages.size(), 1U);
  EXPECT_EQ(wire.broken(), "the connection was closed");
}

TEST(Wire, KeepsItselfAliveAndNoticesSilence) {
  Sockets sockets = SocketPair();
  Wire a(std::move(sockets.a));
  Wire b(std::move(sockets.b));
  const Wire::Clock::time_point now = Wire::Clock::now();
  EXPECT_LE(a.NextDeadline(), now + Wire::kHeartbeatInterval);
  a.KeepAlive(now);
  pollfd ready = {b.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0) << "too early";
  a.KeepAlive(now + Wire::kHeartbeatInterval);
  EXPECT_EQ(poll(&ready, 1, 0), 1);
  std::vector<Message> messages;
  b.Receive(&messages);
  EXPECT_TRUE(messages.empty());
  EXPECT_TRUE(b.broken().empty());

  a.KeepAlive(now + Wire::kPeerTimeout + seconds(1));
  EXPECT_EQ(a.broken(), "nothing was received for 5 s");
}

TEST(Wire, HeartbeatsDoNotPileUp) {
  Sockets sockets = SocketPair();
  Wire wire(std::move(sockets.a));
  wire.Send(MessageType::kGathered, std::string(size_t{8} << 20, 'x'));
  ASSERT_TRUE(wire.wants_to_send());
  const Wire::Clock::time_point later = Wire::Clock::now() + Wire::kHeartbeatInterval;
  wire.KeepAlive(later);
  EXPECT_GE(wire.NextDeadline(), later);
  EXPECT_TRUE(wire.broken().empty());
}

}  // namespace
}  // namespace nccltune::bench
