// SPDX-License-Identifier: Apache-2.0
#include "bench/rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "bench/handshake.h"
#include "bench/support.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Token kToken = *ParseToken("00112233445566778899aabbccddeeff");
const Token kOtherToken = *ParseToken("00112233445566778899aabbccddeefe");

Meeting MeetingOf(int process, int processes, int port, const std::string& host = "127.0.0.1") {
  Meeting meeting;
  meeting.endpoint = {host, port};
  meeting.token = kToken;
  meeting.world.process = process;
  meeting.world.processes = processes;
  meeting.limit = seconds(20);
  return meeting;
}

// Process 0 in a thread of its own.
class HostThread {
 public:
  explicit HostThread(Meeting meeting)
      : thread_([this, meeting = std::move(meeting)] { failure_ = Host(meeting, &wires_); }) {}
  ~HostThread() { Finish(); }

  void Finish() {
    if (thread_.joinable()) thread_.join();
  }
  // Call Finish first.
  const std::optional<MeetingFailure>& failure() const { return failure_; }
  std::vector<Wire>& wires() { return wires_; }

 private:
  std::optional<MeetingFailure> failure_;
  std::vector<Wire> wires_;
  std::thread thread_;
};

std::string ArrivalOf(int process, int processes, const Token& token = kToken) {
  Arrival arrival;
  arrival.token = token;
  arrival.process = static_cast<uint32_t>(process);
  arrival.processes = static_cast<uint32_t>(processes);
  arrival.gpus_per_process = 1;
  return Written(arrival);
}

// Joins from as many threads, and checks that each process got its own connection.
void ExpectMeeting(HostThread* host, int processes, int port, const std::string& address) {
  std::vector<std::thread> threads;
  std::vector<std::optional<Wire>> wires(static_cast<size_t>(processes));
  for (int process = processes - 1; process > 0; --process) {
    threads.emplace_back([&wires, process, processes, port, &address] {
      std::optional<MeetingFailure> failure =
          Join(MeetingOf(process, processes, port, address), &wires[static_cast<size_t>(process)]);
      EXPECT_FALSE(failure) << failure->text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  host->Finish();
  ASSERT_FALSE(host->failure()) << host->failure()->text;
  ASSERT_EQ(host->wires().size(), static_cast<size_t>(processes - 1));
  for (int process = 1; process < processes; ++process) {
    wires[static_cast<size_t>(process)]->Send(MessageType::kGather, std::to_string(process));
    std::vector<Message> messages;
    EXPECT_TRUE(Eventually([&] {
      host->wires()[static_cast<size_t>(process - 1)].Receive(&messages);
      return !messages.empty();
    }));
    EXPECT_EQ(messages.at(0).payload, std::to_string(process));
  }
}

TEST(Rendezvous, AllMeetOverIpv4) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 8, port));
  ExpectMeeting(&host, 8, port, "127.0.0.1");
}

TEST(Rendezvous, AllMeetOverIpv6) {
  const Descriptor six(socket(AF_INET6, SOCK_STREAM, 0));
  std::string error;
  const std::vector<SocketAddress> addresses = Resolve({"::1", FreePort()}, &error);
  if (!six || addresses.empty() || bind(six.get(), addresses[0].get(), addresses[0].length) != 0) {
    GTEST_SKIP() << "this host has no IPv6 loopback";
  }
  const int port = FreePort();
  HostThread host(MeetingOf(0, 3, port, "::1"));
  ExpectMeeting(&host, 3, port, "::1");
}

TEST(Rendezvous, AllMeetOnAllInterfacesWhenTheHostHasAName) {
  char name[256] = {};
  std::string error;
  if (gethostname(name, sizeof name - 1) != 0 || Resolve({name, 1}, &error).empty()) {
    GTEST_SKIP() << "this host's own name has no address: " << error;
  }
  const int port = FreePort();
  HostThread host(MeetingOf(0, 3, port, name));
  ExpectMeeting(&host, 3, port, name);
}

TEST(Rendezvous, WhoComesFirstWaitsForProcessZero) {
  const int port = FreePort();
  std::optional<Wire> wire;
  std::optional<MeetingFailure> failure;
  std::thread guest([&] { failure = Join(MeetingOf(1, 2, port), &wire); });
  std::this_thread::sleep_for(milliseconds(100));
  HostThread host(MeetingOf(0, 2, port));
  guest.join();
  host.Finish();
  EXPECT_FALSE(failure);
  EXPECT_TRUE(wire);
}

TEST(Rendezvous, StrangersDisturbNobody) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 4, port));
  std::vector<Descriptor> strangers;
  const std::string good = ArrivalOf(1, 4);
  const std::string speeches[] = {"",                               // silent
                                  "GET / HTTP/1.1\r\n\r\n",         // something else
                                  std::string(100000, '\0'),        // much of it
                                  good.substr(0, 3),                // a half-open one
                                  good.substr(0, good.size() - 1),  // nearly whole
                                  ArrivalOf(1, 4, kOtherToken)};    // one bit of the token is wrong
  for (int i = 0; i < 10; ++i) {
    for (const std::string& speech : speeches) {
      strangers.push_back(ConnectTo(port));
      // It may be sent away while it speaks.
      send(strangers.back().get(), speech.data(), speech.size(), MSG_NOSIGNAL);
    }
    ConnectTo(port).Close();
  }
  ExpectMeeting(&host, 4, port, "127.0.0.1");
  // Nobody was told anything.
  for (const Descriptor& stranger : strangers) {
    char byte = 0;
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);
  }
}

TEST(Rendezvous, MoreStrangersThanAreKeptDisturbNobody) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 2, port));
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(ConnectTo(port));
  ExpectMeeting(&host, 2, port, "127.0.0.1");
}

TEST(Rendezvous, NamesWhoNeverCame) {
  const int port = FreePort();
  Meeting meeting = MeetingOf(0, 7, port);
  meeting.limit = milliseconds(1500);
  HostThread host(meeting);
  std::optional<Wire> wire;
  std::optional<MeetingFailure> failure;
  std::thread guest([&] { failure = Join(MeetingOf(3, 7, port), &wire); });
  const Descriptor other_token = ConnectTo(port);
  WriteAll(other_token.get(), ArrivalOf(1, 7, kOtherToken));
  const Descriptor garbage = ConnectTo(port);
  WriteAll(garbage.get(), "hello");
  const Descriptor silent = ConnectTo(port);
  ConnectTo(port).Close();
  guest.join();
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->kind, MeetingFailure::Kind::kNobody);
  EXPECT_EQ(host.failure()->text,
            "processes 1, 2, 4-6 of 7 never came to 127.0.0.1:" + std::to_string(port) +
                " within 1.5 s; other connections came: 1 with another token, 1 that spoke "
                "something else, 1 that said nothing, 1 that went at once");
  // Who came is told as well.
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, host.failure()->text);
}

TEST(Rendezvous, AGuestWithoutHostGivesUp) {
  const DeafPort deaf = TakePort();
  Meeting meeting = MeetingOf(1, 2, deaf.port);
  meeting.limit = milliseconds(200);
  std::optional<Wire> wire;
  const std::optional<MeetingFailure> failure = Join(meeting, &wire);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->text.find("process 1 did not reach process 0"), std::string::npos);
  EXPECT_NE(failure->text.find("Connection refused"), std::string::npos) << failure->text;
}

TEST(Rendezvous, AGuestWithAnotherTokenLearnsNothing) {
  const int port = FreePort();
  Meeting host_meeting = MeetingOf(0, 2, port);
  host_meeting.limit = milliseconds(1000);
  HostThread host(host_meeting);
  Meeting meeting = MeetingOf(1, 2, port);
  meeting.token = kOtherToken;
  meeting.limit = milliseconds(500);
  std::optional<Wire> wire;
  const std::optional<MeetingFailure> failure = Join(meeting, &wire);
  ASSERT_TRUE(failure);
  EXPECT_FALSE(wire);
  EXPECT_NE(failure->text.find("closed the connection, as at a wrong token"), std::string::npos)
      << failure->text;
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_NE(host.failure()->text.find("process 1 of 2 never came"), std::string::npos);
}

TEST(Rendezvous, AGuestSeesThatSomethingElseListens) {
  const int port = FreePort();
  std::optional<MeetingFailure> failure;
  std::atomic<bool> given_up = false;
  std::thread guest([&] {
    Meeting meeting = MeetingOf(1, 2, port);
    meeting.limit = milliseconds(1000);
    std::optional<Wire> wire;
    failure = Join(meeting, &wire);
    given_up = true;
  });
  // A server of another kind: it greets and hangs up.
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  std::string error;
  const std::vector<SocketAddress> addresses = Resolve({"127.0.0.1", port}, &error);
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ASSERT_EQ(bind(listener.get(), addresses[0].get(), addresses[0].length), 0);
  ASSERT_EQ(listen(listener.get(), 10), 0);
  EXPECT_TRUE(Eventually([&] {
    const Descriptor connection(accept(listener.get(), nullptr, nullptr));
    if (connection) {
      send(connection.get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL);
      ReadSome(connection.get(), kArrivalBytes);
    }
    return given_up.load();
  }));
  guest.join();
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->text.find("what listens there is not nccltune-bench"), std::string::npos)
      << failure->text;
}

// A message that was read with the welcome would wait until something else wakes the process.
TEST(Rendezvous, WhatFollowsTheWelcomeIsLeftToTheWire) {
  const int port = FreePort();
  std::string error;
  const std::vector<SocketAddress> addresses = Resolve({"127.0.0.1", port}, &error);
  const Descriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ASSERT_EQ(bind(listener.get(), addresses[0].get(), addresses[0].length), 0);
  ASSERT_EQ(listen(listener.get(), 10), 0);
  std::optional<Wire> wire;
  std::optional<MeetingFailure> failure;
  std::thread guest([&] { failure = Join(MeetingOf(1, 2, port), &wire); });
  const Descriptor connection(accept(listener.get(), nullptr, nullptr));
  ReadSome(connection.get(), kArrivalBytes);
  const std::string message({1, 0, 0, 0, static_cast<char>(MessageType::kOpen), 'x'});
  WriteAll(connection.get(), WrittenAnswer("") + WrittenAnswer("") + message);
  guest.join();
  ASSERT_FALSE(failure) << failure->text;
  pollfd ready = {wire->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 1);
  std::vector<Message> messages;
  wire->Receive(&messages);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].payload, "x");
}

TEST(Rendezvous, ProcessesThatContradictEachOtherDoNotMeet) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 3, port));
  Meeting meeting = MeetingOf(1, 2, port);
  std::optional<Wire> wire;
  const std::optional<MeetingFailure> failure = Join(meeting, &wire);
  host.Finish();
  ASSERT_TRUE(failure);
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->kind, MeetingFailure::Kind::kBadInput);
  EXPECT_EQ(failure->kind, MeetingFailure::Kind::kBadInput);
  EXPECT_EQ(failure->text, "process 1 was started as one of 2, process 0 as one of 3");
  EXPECT_EQ(host.failure()->text, failure->text);
}

TEST(Rendezvous, ARankIsGivenOnce) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 3, port));
  const Descriptor first = ConnectTo(port);
  WriteAll(first.get(), ArrivalOf(2, 3));
  ReadSome(first.get(), WrittenAnswer("").size());
  const Descriptor second = ConnectTo(port);
  WriteAll(second.get(), ArrivalOf(2, 3));
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->text, "two processes say that they are process 2");
}

TEST(Rendezvous, WhoGoesBeforeAllAreThereIsMissed) {
  const int port = FreePort();
  HostThread host(MeetingOf(0, 3, port));
  Descriptor guest = ConnectTo(port);
  WriteAll(guest.get(), ArrivalOf(2, 3));
  ReadSome(guest.get(), WrittenAnswer("").size());
  guest.Close();
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->kind, MeetingFailure::Kind::kNobody);
  EXPECT_NE(host.failure()->text.find("process 2 came to the rendezvous and ended"),
            std::string::npos);
}

TEST(Rendezvous, WhoIsInterruptedStopsWaiting) {
  const Descriptor event(eventfd(1, EFD_CLOEXEC));
  const int port = FreePort();
  Meeting meeting = MeetingOf(0, 3, port);
  meeting.interrupt = event.get();
  std::vector<Wire> wires;
  std::optional<MeetingFailure> failure = Host(meeting, &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, MeetingFailure::Kind::kInterrupted);
  meeting.world.process = 1;
  std::optional<Wire> wire;
  failure = Join(meeting, &wire);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, MeetingFailure::Kind::kInterrupted);
}

TEST(Rendezvous, APortInUseIsNamed) {
  const int port = FreePort();
  HostThread first(MeetingOf(0, 2, port));
  Descriptor guest = ConnectTo(port);
  std::vector<Wire> wires;
  const std::optional<MeetingFailure> failure = Host(MeetingOf(0, 2, port), &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, MeetingFailure::Kind::kBadInput);
  EXPECT_NE(failure->text.find("cannot listen on 127.0.0.1:"), std::string::npos);
  EXPECT_NE(failure->hint.find("another port"), std::string::npos);
  WriteAll(guest.get(), ArrivalOf(1, 2));
}

TEST(Rendezvous, AnAddressOfAnotherHostIsNamed) {
  // TEST-NET-1 (RFC 5737): nobody's.
  Meeting meeting = MeetingOf(0, 2, FreePort(), "192.0.2.1");
  std::vector<Wire> wires;
  const std::optional<MeetingFailure> failure = Host(meeting, &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, MeetingFailure::Kind::kBadInput);
  EXPECT_NE(failure->hint.find("does not have this address"), std::string::npos) << failure->hint;
}

}  // namespace
}  // namespace nccltune::bench
