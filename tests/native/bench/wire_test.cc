// SPDX-License-Identifier: Apache-2.0
#include "bench/wire.h"
#include "bench/ensemble.h"
#include "bench/random.h"
#include "bench/rendezvous.h"
#include "bench/support.h"
#include "testing.h"

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

Step FullStep() {
  Step step;
  step.sequence = 7;
  step.collective = Collective::kScatter;
  step.bytes = size_t{1} << 40;
  step.dtype = Dtype::kF8e5m2;
  step.redop = Redop::kAvg;
  step.root = 3;
  step.registered = step.graph = step.load = true;
  step.choice = {Choice::Kind::kForced, {abi::kPat, abi::kSimple}, 12, 4096};
  step.group_calls = 8;
  step.warmup = 5;
  step.iterations = 99;
  step.check = false;
  step.timeout_s = 2.5;
  step.seed = ~uint64_t{0};
  step.round = 11;
  step.repeat = 2;
  return step;
}

TEST(Messages, AStepKeepsEverything) {
  const Step step = FullStep();
  Step read;
  ASSERT_TRUE(Read(Serialize(step), &read));
  EXPECT_TRUE(read == step);
}

TEST(Messages, AResultKeepsEverything) {
  StepResult result;
  result.timings = {{2, 68.125, 70.5, 3, 100.0, 125.5}, {3, 1e-3, std::nullopt, std::nullopt}};
  result.ran = ExecutedChoice{{abi::kTree, -1}, std::nullopt, size_t{512}};
  result.seen = TunerInputs{3, false};
  result.applied = false;
  result.error = StepError{ErrorKind::kMemory, "too \n large", 2, true};
  StepResult read;
  ASSERT_TRUE(Read(Serialize(result), &read));
  EXPECT_TRUE(read == result);
}

TEST(Messages, TheOthersKeepEverything) {
  TableResult table;
  table.row.costs = {{{abi::kRing, abi::kLl}, 12.5}, {{abi::kTree, abi::kLl}, std::nullopt}};
  table.row.predicted = {abi::kRing, abi::kLl};
  TableResult table_read;
  ASSERT_TRUE(Read(Serialize(table), &table_read));
  EXPECT_EQ(table_read.row.costs, table.row.costs);
  EXPECT_EQ(table_read.row.predicted, table.row.predicted);
  EXPECT_FALSE(table_read.error);

  OpenResult opened;
  opened.info.backend = "nccl";
  opened.info.gpus = {{1, "GPU", "hash"}};
  opened.info.collectives = {Collective::kAllToAll};
  opened.info.chunk = true;
  opened.error = OpenError{OpenError::Kind::kFailed, "text", "hint", 4};
  OpenResult opened_read;
  ASSERT_TRUE(Read(Serialize(opened), &opened_read));
  EXPECT_EQ(Serialize(opened_read), Serialize(opened));
  EXPECT_EQ(opened_read.info.gpus[0].host_hash, "hash");
  EXPECT_EQ(opened_read.error->hint, "hint");

  AbortOrder order_read;
  ASSERT_TRUE(Read(Serialize(AbortOrder{143, "why"}), &order_read));
  EXPECT_EQ(order_read.status, 143);
  EXPECT_EQ(order_read.text, "why");

  const std::vector<std::string> parts = {"", std::string("\0a", 2), "b"};
  std::vector<std::string> parts_read;
  ASSERT_TRUE(Read(Serialize(parts), &parts_read));
  EXPECT_EQ(parts_read, parts);
}

template <typename T>
void ExpectRefused(const std::string& bytes) {
  T value;
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Read(bytes.substr(0, length), &value)) << length;
  }
  EXPECT_FALSE(Read(bytes + "x", &value));
}

TEST(Messages, CutAndLongerOnesAreRefused) {
  ExpectRefused<Step>(Serialize(FullStep()));
  StepResult result;
  result.timings = {{2, 1, 2, 3}};
  result.error = StepError{ErrorKind::kCuda, "text", 1, false};
  ExpectRefused<StepResult>(Serialize(result));
  ExpectRefused<std::vector<std::string>>(Serialize(std::vector<std::string>{"a", "bc"}));
}

// For any input, parsing must neither crash nor allocate more than the input size justifies.
TEST(Messages, AnyBytesCanBeRead) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes =
        Serialize(StepResult{{{1, 2, 3, 4}}, std::nullopt, std::nullopt, true, std::nullopt});
    for (int changes = 0; changes < 3; ++changes) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    StepResult result;
    OpenResult opened;
    std::vector<std::string> parts;
    Read(bytes, &result);
    Read(bytes, &opened);
    Read(bytes, &parts);
    EXPECT_LE(result.timings.size(), bytes.size());
    EXPECT_LE(parts.size(), bytes.size());
  }
}

TEST(Handshake, AnArrivalKeepsEverything) {
  JoinRequest arrival;
  arrival.token.fill(std::byte{0xab});
  arrival.process = 3;
  arrival.processes = 4;
  arrival.gpus_per_process = 8;
  const std::string bytes = Serialize(arrival);
  ASSERT_EQ(bytes.size(), kJoinRequestBytes);
  const std::optional<JoinRequest> read = ParseJoinRequest(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(Serialize(*read), bytes);
  EXPECT_EQ(read->process, 3U);
  EXPECT_EQ(read->gpus_per_process, 8U);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_TRUE(MayBeJoinRequest(bytes.substr(0, length)));
    EXPECT_FALSE(ParseJoinRequest(bytes.substr(0, length)));
  }
  EXPECT_FALSE(MayBeJoinRequest("GET / HTTP/1.1"));
  EXPECT_FALSE(MayBeJoinRequest("ncclx"));
}

TEST(Handshake, EachContradictionIsReported) {
  const World world = {
      .process = 0, .processes = 4, .local_process = 0, .gpus_per_process = 1, .emulated_nodes = 0};
  JoinRequest arrival;
  arrival.process = 3;
  arrival.processes = 4;
  arrival.gpus_per_process = 1;
  EXPECT_EQ(RejectionReason(arrival, world), "");
  arrival.processes = 8;
  EXPECT_EQ(RejectionReason(arrival, world),
            "process 3 was started as one of 8, process 0 as one of 4");
  arrival.processes = 4;
  arrival.gpus_per_process = 2;
  EXPECT_EQ(RejectionReason(arrival, world), "process 3 has 2 GPUs per process, process 0 has 1");
  arrival.gpus_per_process = 1;
  arrival.process = 0;
  EXPECT_EQ(RejectionReason(arrival, world), "a process joined as process 0; expected 1 to 3");
  arrival.process = 4;
  EXPECT_EQ(RejectionReason(arrival, world), "a process joined as process 4; expected 1 to 3");
  arrival.version = kWireVersion + 1;
  EXPECT_TRUE(Has(RejectionReason(arrival, world), "another version"));
}

TEST(Handshake, RepliesAreParsedIncrementally) {
  std::string refusal;
  size_t missing = 0;
  const std::string welcome = SerializeReply("");
  for (size_t length = 0; length < welcome.size(); ++length) {
    EXPECT_EQ(ParseReply(welcome.substr(0, length), &refusal, &missing), JoinReply::kNotYet);
    EXPECT_EQ(missing, welcome.size() - length);
  }
  EXPECT_EQ(ParseReply(welcome, &refusal, &missing), JoinReply::kWelcome);
  const std::string refused = SerializeReply("go away");
  EXPECT_EQ(ParseReply(refused.substr(0, refused.size() - 3), &refusal, &missing),
            JoinReply::kNotYet);
  EXPECT_EQ(missing, 3U);
  EXPECT_EQ(ParseReply(refused, &refusal, &missing), JoinReply::kRefused);
  EXPECT_EQ(refusal, "go away");
  EXPECT_EQ(ParseReply("SSH-2.0-", &refusal, &missing), JoinReply::kGarbage);
  const std::string longest = SerializeReply(std::string(5000, 'x'));
  EXPECT_EQ(longest.size(), kMaxReplyBytes);
  EXPECT_EQ(ParseReply(longest, &refusal, &missing), JoinReply::kRefused);
}

TEST(LineOutput, WritesLinesAtOnce) {
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  output.Write("one");
  output.Write("");
  EXPECT_EQ(output.waiting(), 0U);
  EXPECT_EQ(ReadSome(pipe.read.fd(), 5), "one\n\n");
}

TEST(LineOutput, NeverWaitsForTheReader) {
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  std::string expected;
  for (int i = 0; i < 50'000; ++i) {
    output.Write(std::to_string(i));
    expected += std::to_string(i) + "\n";
  }
  EXPECT_GT(output.waiting(), 0U);
  std::string read;
  while (read.size() < expected.size()) {
    read += ReadSome(pipe.read.fd(), std::min<size_t>(4096, expected.size() - read.size()));
    output.Flush();
  }
  EXPECT_EQ(read, expected);
  EXPECT_EQ(output.waiting(), 0U);
  EXPECT_EQ(fcntl(pipe.write.fd(), F_GETFL) & O_NONBLOCK, 0) << "others share the descriptor";
}

TEST(LineOutput, ReportsAClosedReader) {
  signal(SIGPIPE, SIG_IGN);
  Pipe pipe = MakePipe();
  LineOutput output(pipe.write.fd());
  pipe.read.Close();
  output.Write("one");
  EXPECT_EQ(output.broken(), "Broken pipe");
  output.Write("two");
  EXPECT_EQ(output.waiting(), 0U);
}

TEST(LineOutput, ReportsAFullDisk) {
  const Descriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "there is no /dev/full";
  LineOutput output(full.fd());
  output.Write("one");
  EXPECT_EQ(output.broken(), "No space left on device");
}

}  // namespace
}  // namespace nccltune::bench
