// SPDX-License-Identifier: Apache-2.0
#include "bench/rendezvous.h"

#include <sys/eventfd.h>

#include "bench/support.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Token kToken = *ParseToken("00112233445566778899aabbccddeeff");
const Token kOtherToken = *ParseToken("00112233445566778899aabbccddeefe");

RendezvousConfig ConfigOf(int process, int processes, int port,
                          const std::string& host = "127.0.0.1") {
  RendezvousConfig config;
  config.endpoint = {host, port};
  config.token = kToken;
  config.world.process = process;
  config.world.processes = processes;
  config.limit = seconds(120);
  return config;
}

// Runs process 0 of the rendezvous in a thread.
class HostThread {
 public:
  explicit HostThread(RendezvousConfig config)
      : thread_(
            [this, config = std::move(config)] { failure_ = HostRendezvous(config, &wires_); }) {}
  ~HostThread() { Finish(); }

  void Finish() {
    if (thread_.joinable()) thread_.join();
  }
  // Finish must be called first.
  const std::optional<RendezvousError>& failure() const { return failure_; }
  std::vector<Wire>& wires() { return wires_; }

 private:
  std::optional<RendezvousError> failure_;
  std::vector<Wire> wires_;
  std::thread thread_;
};

std::string JoinRequestOf(int process, int processes, const Token& token = kToken) {
  JoinRequest request;
  request.token = token;
  request.process = static_cast<uint32_t>(process);
  request.processes = static_cast<uint32_t>(processes);
  request.gpus_per_process = 1;
  return Serialize(request);
}

// Joins from one thread for each other process, and checks that each got its own connection.
void ExpectAllJoin(HostThread* host, int processes, int port, const std::string& address) {
  std::vector<std::thread> threads;
  std::vector<std::optional<Wire>> wires(static_cast<size_t>(processes));
  for (int process = processes - 1; process > 0; --process) {
    threads.emplace_back([&wires, process, processes, port, &address] {
      std::optional<RendezvousError> failure = JoinRendezvous(
          ConfigOf(process, processes, port, address), &wires[static_cast<size_t>(process)]);
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

// A server at the port of 127.0.0.1 that is not process 0.
Descriptor ListenOn(int port, int flags = 0) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | flags, 0));
  std::string error;
  const std::vector<SocketAddress> addresses = Resolve({"127.0.0.1", port}, &error);
  const int on = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  EXPECT_EQ(bind(listener.fd(), addresses.at(0).get(), addresses[0].length), 0);
  EXPECT_EQ(listen(listener.fd(), 10), 0);
  return listener;
}

TEST(Rendezvous, AllProcessesJoinOverIpv4) {
  const int port = FreePort();
  HostThread host(ConfigOf(0, 8, port));
  ExpectAllJoin(&host, 8, port, "127.0.0.1");
}

TEST(Rendezvous, AllProcessesJoinOverIpv6) {
  const Descriptor six(socket(AF_INET6, SOCK_STREAM, 0));
  std::string error;
  const std::vector<SocketAddress> addresses = Resolve({"::1", FreePort()}, &error);
  if (!six || addresses.empty() || bind(six.fd(), addresses[0].get(), addresses[0].length) != 0) {
    GTEST_SKIP() << "this host has no IPv6 loopback";
  }
  const int port = FreePort();
  HostThread host(ConfigOf(0, 3, port, "::1"));
  ExpectAllJoin(&host, 3, port, "::1");
}

TEST(Rendezvous, AllProcessesJoinThroughAHostName) {
  char name[256] = {};
  std::string error;
  if (gethostname(name, sizeof name - 1) != 0 || Resolve({name, 1}, &error).empty()) {
    GTEST_SKIP() << "this host's own name has no address: " << error;
  }
  const int port = FreePort();
  HostThread host(ConfigOf(0, 3, port, name));
  ExpectAllJoin(&host, 3, port, name);
}

TEST(Rendezvous, AnEarlyProcessWaitsForProcessZero) {
  const int port = FreePort();
  std::optional<Wire> wire;
  std::optional<RendezvousError> failure;
  std::thread member([&] { failure = JoinRendezvous(ConfigOf(1, 2, port), &wire); });
  std::this_thread::sleep_for(milliseconds(100));
  HostThread host(ConfigOf(0, 2, port));
  member.join();
  host.Finish();
  EXPECT_FALSE(failure);
  EXPECT_TRUE(wire);
}

TEST(Rendezvous, UnknownConnectionsDoNotAffectTheRun) {
  const int port = FreePort();
  HostThread host(ConfigOf(0, 4, port));
  std::vector<Descriptor> strangers;
  const std::string good = JoinRequestOf(1, 4);
  const std::string speeches[] = {
      "",                                 // silent
      "GET / HTTP/1.1\r\n\r\n",           // another protocol
      std::string(100000, '\0'),          // a lot of garbage
      good.substr(0, 3),                  // an incomplete one
      good.substr(0, good.size() - 1),    // one byte short
      JoinRequestOf(1, 4, kOtherToken)};  // one bit of the token is wrong
  for (int i = 0; i < 10; ++i) {
    for (const std::string& speech : speeches) {
      strangers.push_back(ConnectTo(port));
      // The connection may be closed while the test still writes.
      send(strangers.back().fd(), speech.data(), speech.size(), MSG_NOSIGNAL);
    }
    ConnectTo(port).Close();
  }
  ExpectAllJoin(&host, 4, port, "127.0.0.1");
  // None of these connections received an answer.
  for (const Descriptor& connection : strangers) {
    char byte = 0;
    EXPECT_LE(recv(connection.fd(), &byte, 1, 0), 0);
  }
}

TEST(Rendezvous, TooManyUnknownConnectionsDoNotAffectTheRun) {
  const int port = FreePort();
  HostThread host(ConfigOf(0, 2, port));
  std::vector<Descriptor> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(ConnectTo(port));
  ExpectAllJoin(&host, 2, port, "127.0.0.1");
}

TEST(Rendezvous, MissingProcessesAreNamed) {
  const int port = FreePort();
  RendezvousConfig config = ConfigOf(0, 7, port);
  config.limit = milliseconds(5500);
  HostThread host(config);
  std::optional<Wire> wire;
  std::optional<RendezvousError> failure;
  std::thread member([&] { failure = JoinRendezvous(ConfigOf(3, 7, port), &wire); });
  const Descriptor other_token = ConnectTo(port);
  WriteAll(other_token.fd(), JoinRequestOf(1, 7, kOtherToken));
  const Descriptor garbage = ConnectTo(port);
  WriteAll(garbage.fd(), "hello");
  const Descriptor silent = ConnectTo(port);
  ConnectTo(port).Close();
  member.join();
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->kind, RendezvousError::Kind::kMissingProcess);
  EXPECT_EQ(host.failure()->text,
            "processes 1, 2, 4-6 of 7 did not connect to 127.0.0.1:" + std::to_string(port) +
                " within 5.5 s; rejected connections: 1 with a wrong token, 1 with "
                "another protocol, 1 that sent nothing, 1 that closed at once");
  // The process that has joined receives the error too.
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->text, host.failure()->text);
}

TEST(Rendezvous, AProcessWithoutProcessZeroTimesOut) {
  const DeafPort deaf = TakePort();
  RendezvousConfig config = ConfigOf(1, 2, deaf.port);
  config.limit = milliseconds(200);
  std::optional<Wire> wire;
  const std::optional<RendezvousError> failure = JoinRendezvous(config, &wire);
  ASSERT_TRUE(failure);
  EXPECT_TRUE(Has(failure->text, "process 1 did not reach process 0"));
  EXPECT_TRUE(Has(failure->text, "Connection refused")) << failure->text;
}

TEST(Rendezvous, AProcessWithAWrongTokenGetsNoAnswer) {
  const int port = FreePort();
  RendezvousConfig host_meeting = ConfigOf(0, 2, port);
  host_meeting.limit = milliseconds(6000);
  HostThread host(host_meeting);
  RendezvousConfig config = ConfigOf(1, 2, port);
  config.token = kOtherToken;
  config.limit = milliseconds(4000);
  std::optional<Wire> wire;
  const std::optional<RendezvousError> failure = JoinRendezvous(config, &wire);
  ASSERT_TRUE(failure);
  EXPECT_FALSE(wire);
  EXPECT_TRUE(Has(failure->text, "process 0 does so for a wrong token")) << failure->text;
  host.Finish();
  ASSERT_TRUE(host.failure());
  EXPECT_TRUE(Has(host.failure()->text, "process 1 of 2 did not connect"));
}

TEST(Rendezvous, AnotherProgramAtTheAddressIsDetected) {
  const int port = FreePort();
  std::optional<RendezvousError> failure;
  std::atomic<bool> given_up = false;
  std::thread member([&] {
    RendezvousConfig config = ConfigOf(1, 2, port);
    config.limit = milliseconds(4000);
    std::optional<Wire> wire;
    failure = JoinRendezvous(config, &wire);
    given_up = true;
  });
  // A server with another protocol: it sends a greeting and closes the connection.
  const Descriptor listener = ListenOn(port, SOCK_NONBLOCK);
  EXPECT_TRUE(Eventually([&] {
    const Descriptor connection(accept(listener.fd(), nullptr, nullptr));
    if (connection) {
      send(connection.fd(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL);
      ReadSome(connection.fd(), kJoinRequestBytes);
    }
    return given_up.load();
  }));
  member.join();
  ASSERT_TRUE(failure);
  EXPECT_TRUE(Has(failure->text, "the program that listens there is not nccltune-bench"))
      << failure->text;
}

// The reply must be read alone. A message read together with it would wait in the buffer until
// another event wakes the process.
TEST(Rendezvous, BytesAfterTheReplyAreLeftForTheWire) {
  const int port = FreePort();
  const Descriptor listener = ListenOn(port);
  std::optional<Wire> wire;
  std::optional<RendezvousError> failure;
  std::thread member([&] { failure = JoinRendezvous(ConfigOf(1, 2, port), &wire); });
  const Descriptor connection(accept(listener.fd(), nullptr, nullptr));
  ReadSome(connection.fd(), kJoinRequestBytes);
  const std::string message({1, 0, 0, 0, static_cast<char>(MessageType::kOpen), 'x'});
  WriteAll(connection.fd(), SerializeReply("") + SerializeReply("") + message);
  member.join();
  ASSERT_FALSE(failure) << failure->text;
  pollfd ready = {wire->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 1);
  std::vector<Message> messages;
  wire->Receive(&messages);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].payload, "x");
}

TEST(Rendezvous, ContradictingProcessesAreRejected) {
  const int port = FreePort();
  HostThread host(ConfigOf(0, 3, port));
  RendezvousConfig config = ConfigOf(1, 2, port);
  std::optional<Wire> wire;
  const std::optional<RendezvousError> failure = JoinRendezvous(config, &wire);
  host.Finish();
  ASSERT_TRUE(failure);
  ASSERT_TRUE(host.failure());
  EXPECT_EQ(host.failure()->kind, RendezvousError::Kind::kBadInput);
  EXPECT_EQ(failure->kind, RendezvousError::Kind::kBadInput);
  EXPECT_EQ(failure->text, "process 1 was started as one of 2, process 0 as one of 3");
  EXPECT_EQ(host.failure()->text, failure->text);
}

TEST(Rendezvous, ARankIsGivenOnceAndOneThatLeavesEarlyIsReported) {
  for (const bool leaves : {false, true}) {
    const int port = FreePort();
    HostThread host(ConfigOf(0, 3, port));
    Descriptor first = ConnectTo(port);
    WriteAll(first.fd(), JoinRequestOf(2, 3));
    ReadSome(first.fd(), SerializeReply("").size());
    Descriptor second;
    if (leaves) {
      first.Close();
    } else {
      second = ConnectTo(port);
      WriteAll(second.fd(), JoinRequestOf(2, 3));
    }
    host.Finish();
    ASSERT_TRUE(host.failure());
    if (leaves) {
      EXPECT_EQ(host.failure()->kind, RendezvousError::Kind::kMissingProcess);
    }
    EXPECT_TRUE(Has(host.failure()->text, leaves ? "process 2 joined the rendezvous and ended"
                                                 : "two processes joined as process 2"));
  }
}

TEST(Rendezvous, AnInterruptEndsTheWait) {
  const Descriptor event(eventfd(1, EFD_CLOEXEC));
  const int port = FreePort();
  RendezvousConfig config = ConfigOf(0, 3, port);
  config.interrupt = event.fd();
  std::vector<Wire> wires;
  std::optional<RendezvousError> failure = HostRendezvous(config, &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, RendezvousError::Kind::kInterrupted);
  config.world.process = 1;
  std::optional<Wire> wire;
  failure = JoinRendezvous(config, &wire);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, RendezvousError::Kind::kInterrupted);
}

TEST(Rendezvous, APortInUseIsReported) {
  const int port = FreePort();
  HostThread first(ConfigOf(0, 2, port));
  Descriptor member = ConnectTo(port);
  std::vector<Wire> wires;
  const std::optional<RendezvousError> failure = HostRendezvous(ConfigOf(0, 2, port), &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, RendezvousError::Kind::kBadInput);
  EXPECT_TRUE(Has(failure->text, "cannot listen on 127.0.0.1:"));
  EXPECT_TRUE(Has(failure->hint, "another port"));
  WriteAll(member.fd(), JoinRequestOf(1, 2));
}

TEST(Rendezvous, AnAddressOfAnotherHostIsReported) {
  // An address of TEST-NET-1 (RFC 5737), where no host exists.
  RendezvousConfig config = ConfigOf(0, 2, FreePort(), "192.0.2.1");
  std::vector<Wire> wires;
  const std::optional<RendezvousError> failure = HostRendezvous(config, &wires);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, RendezvousError::Kind::kBadInput);
  EXPECT_TRUE(Has(failure->hint, "does not have this address")) << failure->hint;
}

TEST(Endpoint, NamesAndAddressesAreRead) {
  EXPECT_EQ(ParseEndpoint("node0:1"), (Endpoint{"node0", 1}));
  EXPECT_EQ(ParseEndpoint("10.0.0.1:65535"), (Endpoint{"10.0.0.1", 65535}));
  EXPECT_EQ(ParseEndpoint("[fe80::1%eth0]:29500"), (Endpoint{"fe80::1%eth0", 29500}));
}

TEST(Endpoint, OthersAreNone) {
  for (const char* text : {"", ":", "node0", "node0:", ":1", "node0:0", "node0:65536", "node0:1a",
                           "node0:-1", "::1:29500", "[]:1", "a b:1", "[::1:1", "no]de:1"}) {
    EXPECT_FALSE(ParseEndpoint(text)) << text;
  }
}

TEST(Endpoint, WritingIsTheInverseOfParsing) {
  for (const char* text : {"node0:1", "10.0.0.1:2", "[::1]:3"}) {
    EXPECT_EQ(ToString(*ParseEndpoint(text)), text);
  }
}

TEST(Endpoint, AddressesAreListenedOnExactly) {
  EXPECT_TRUE(IsExact({"127.0.0.1", 1}));
  EXPECT_TRUE(IsExact({"::1", 1}));
  EXPECT_TRUE(IsExact({"fe80::1%lo", 1}));
  EXPECT_TRUE(IsExact({"localhost", 1}));
  EXPECT_FALSE(IsExact({"node0", 1}));
}

TEST(Endpoint, AnUnknownHostHasNoAddress) {
  std::string error;
  EXPECT_FALSE(Resolve({"127.0.0.1", 1}, &error).empty());
  EXPECT_TRUE(Resolve({"no.such.host.invalid", 1}, &error).empty());
  EXPECT_FALSE(error.empty());
}

}  // namespace
}  // namespace nccltune::bench
