// SPDX-License-Identifier: Apache-2.0
// Fuzzes a receiver. The peer knows the token, and the input decides what it sends on which flow.
// Valid data must arrive although flows die; invalid data must do no harm.
#include "net/clock.h"
#include "net/fuzz_socket.h"
#include "net/receiver.h"
#include "net/transport.h"
#include "net/wire.h"
#include "standard.h"

namespace nccltune::net {
namespace {

constexpr std::byte kUntouched{0xc7};
constexpr size_t kMostSteps = 80;

struct Shared {
  Listener* listener = nullptr;
  Invitation invitation;
  uint64_t connections = 0;

  // One listener for all cases: connections start and end, as in a long-lived process.
  static Shared& Get() {
    static Shared* const shared = [] {
      auto* const made = new Shared;
      std::array<std::byte, kHandleBytes> handle{};
      Require(Listen(FuzzContext(), FuzzDevice(), handle, &made->listener) == abi::kSuccess,
              "a listener can be made");
      made->invitation = *ReadHandle(handle);
      return made;
    }();
    return *shared;
  }
};

class Case {
 public:
  explicit Case(std::span<const uint8_t> bytes)
      : in_(bytes), connection_(++Shared::Get().connections), flows_(2 + in_.Below(3)) {
    for (size_t i = 0; i < flows_.size(); ++i) SendHello(i);
    const int64_t until = NowNs() + kLongestNs;
    while (receiver_ == nullptr) {
      Require(Accept(Shared::Get().listener, &receiver_) == abi::kSuccess, "accept works");
      Require(NowNs() < until, "a connection comes about");
    }
  }

  void Run() {
    for (size_t step = 0; step < kMostSteps && !in_.empty(); ++step) Step();
    if (!tainted_) FinishHonestly();
    const int64_t until = NowNs() + (tainted_ ? kNsPerMs : kLongestNs);
    while (!posted_.empty() && NowNs() < until) TestAll();
    Require(tainted_ || posted_.empty(), "what was sent arrives");
    flows_.clear();
    strangers_.clear();
    Close(receiver_);
    for (const Posted& done : done_) CheckUntouched(done);
    for (const Posted& left : posted_) CheckBehind(left);
  }

 private:
  struct Posted {
    uint64_t number = 0;
    size_t capacity = 0;
    TransferRequest* request = nullptr;
    std::vector<std::byte> buffer;
    std::vector<std::byte> when_done;
  };

  void SendHello(size_t flow) {
    flows_[flow] = FuzzSocket(Shared::Get().invitation.ends.front());
    flows_[flow].SendBytes(Encode(HelloOf(flow)));
  }

  // Reconnects a flow, and waits for the welcome as a sender does.
  void Join(size_t flow) {
    SendHello(flow);
    AwaitAnswer(&flows_[flow]);
  }

  static void AwaitAnswer(FuzzSocket* socket) {
    std::vector<std::byte> heard;
    const int64_t until = NowNs() + kLongestNs;
    while (socket->Hear(&heard) && heard.size() < kWelcomeBytes) {
      Require(NowNs() < until, "a door answers");
      // It accepts immediately when it is called, else every 10 ms.
      Receiver* nobody = nullptr;
      Require(Accept(Shared::Get().listener, &nobody) == abi::kSuccess, "accept works");
      Require(nobody == nullptr, "nobody else comes");
    }
  }

  Hello HelloOf(size_t flow) const {
    Hello hello;
    hello.token = Shared::Get().invitation.token;
    hello.connection = connection_;
    hello.flow = static_cast<uint16_t>(flow);
    hello.flows = static_cast<uint16_t>(flows_.size());
    return hello;
  }

  void Step() {
    switch (in_.Byte() % 12) {
      case 0:
      case 1:
        return Post();
      case 2:
      case 3:
      case 4:
      case 5: {
        const DataHeader chunk = AnyChunk();
        return SendOrRejoin(in_.Below(flows_.size()), FlowChunk(chunk));
      }
      case 6:
        return CutShort();
      case 7:
        return SendMutated();
      case 8:
        return SendRandomBytes();
      case 9:
        return Rejoin();
      case 10:
        return SendStranger();
      default:
        return TestAll();
    }
  }

  void Post() {
    if (posted_.size() >= kMostRequests) return;
    Posted posted;
    posted.number = next_;
    posted.capacity = FuzzSize(next_) + in_.Below(100);
    posted.buffer.assign(posted.capacity + 64, kUntouched);
    const abi::Result result =
        Receive(receiver_, posted.buffer.data(), posted.capacity, &posted.request);
    Require(tainted_ || result == abi::kSuccess, "a receive can be posted");
    if (posted.request == nullptr) return;
    ++next_;
    posted_.push_back(std::move(posted));
  }

  // Returns a chunk that our sender may send now or may have sent before.
  DataHeader AnyChunk() {
    DataHeader chunk;
    chunk.request = in_.Below(next_ + 4);
    chunk.total = FuzzSize(chunk.request);
    const uint64_t granule = Granule(chunk.total);
    const uint64_t granules = (chunk.total + granule - 1) / granule;
    if (granules == 0) return chunk;
    const uint64_t first = in_.Below(granules);
    const uint64_t last = first + 1 + in_.Below(granules - first);
    chunk.offset = first * granule;
    chunk.length = static_cast<uint32_t>(std::min(last * granule, chunk.total) - chunk.offset);
    return chunk;
  }

  static std::vector<std::byte> FlowChunk(const DataHeader& header) {
    const auto encoded = Encode(header);
    std::vector<std::byte> frame(encoded.begin(), encoded.end());
    frame.reserve(frame.size() + header.length);
    for (uint64_t i = 0; i < header.length; ++i) {
      frame.push_back(FuzzByte(header.request, header.offset + i));
    }
    return frame;
  }

  void SendOrRejoin(size_t flow, std::span<const std::byte> bytes) {
    if (!flows_[flow].SendBytes(bytes)) Join(flow);
  }

  void Leave(size_t flow) {
    if (in_.Chance()) flows_[flow].Reset();
    Join(flow);
  }

  void CutShort() {
    const size_t flow = in_.Below(flows_.size());
    const std::vector<std::byte> frame = FlowChunk(AnyChunk());
    flows_[flow].SendBytes(std::span(frame).first(in_.Below(frame.size())));
    Leave(flow);
  }

  void SendMutated() {
    const size_t flow = in_.Below(flows_.size());
    const DataHeader chunk = AnyChunk();
    std::vector<std::byte> frame = FlowChunk(chunk);
    in_.Mutate(std::span(frame).first(kDataHeaderBytes));
    Taint(frame);
    flows_[flow].SendBytes(frame);
    Leave(flow);
  }

  void SendRandomBytes() {
    const size_t flow = in_.Below(flows_.size());
    const std::vector<std::byte> bytes = in_.Bytes(in_.Below(200));
    Taint(bytes);
    flows_[flow].SendBytes(bytes);
    Leave(flow);
  }

  // Marks the peer as malicious if it sends a valid frame with wrong content.
  void Taint(std::span<const std::byte> bytes) {
    if (bytes.size() < kDataHeaderBytes) return;
    if (DecodeForwardFrame(bytes.first<kDataHeaderBytes>())) tainted_ = true;
  }

  void Rejoin() {
    const size_t flow = in_.Below(flows_.size());
    // The old socket may still be open when the new one connects.
    std::optional<FuzzSocket> old;
    if (in_.Chance()) old = std::move(flows_[flow]);
    Join(flow);
  }

  void SendStranger() {
    FuzzSocket stranger(Shared::Get().invitation.ends.front());
    const size_t flow = in_.Below(flows_.size());
    auto hello = Encode(HelloOf(flow));
    if (in_.Chance()) {
      in_.Mutate(hello);
      // The input may name another connection of the same peer, which nobody accepts.
      const uint64_t own = connection_;
      std::memcpy(hello.data() + 24, &own, sizeof(own));
      stranger.SendBytes(hello);
      const std::optional<Hello> understood = DecodeHello(hello);
      const bool taken = understood && understood->release == kWireRelease &&
                         SameToken(understood->token, HelloOf(0).token);
      if (taken) AwaitAnswer(&stranger);
      if (taken && understood->flow < flows_.size()) Join(understood->flow);
    } else {
      stranger.SendBytes(in_.Bytes(in_.Below(100)));
    }
    if (in_.Chance()) stranger.Reset();
    strangers_.push_back(std::move(stranger));
  }

  void TestAll() {
    for (size_t i = 0; i < posted_.size();) {
      bool done = false;
      size_t bytes = SIZE_MAX;
      const abi::Result result = Test(posted_[i].request, &done, &bytes);
      Require(tainted_ || result == abi::kSuccess, "nothing fails for a peer that means well");
      if (!done) {
        ++i;
        continue;
      }
      Finished(posted_[i], bytes);
      done_.push_back(std::move(posted_[i]));
      posted_.erase(posted_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  void Finished(Posted& posted, size_t bytes) {
    Require(bytes <= posted.capacity, "what arrived fits");
    CheckBehind(posted);
    posted.when_done = posted.buffer;
    if (tainted_) return;
    Require(bytes == FuzzSize(posted.number), "a message has its size");
    for (size_t i = 0; i < bytes; ++i) {
      Require(posted.buffer[i] == FuzzByte(posted.number, i), "a message has its bytes");
    }
  }

  static void CheckBehind(const Posted& posted) {
    const auto behind = posted.buffer.begin() + static_cast<ptrdiff_t>(posted.capacity);
    Require(std::all_of(behind, posted.buffer.end(), [](std::byte b) { return b == kUntouched; }),
            "nothing is written behind a buffer");
  }

  static void CheckUntouched(const Posted& done) {
    Require(done.buffer == done.when_done, "nothing is written to a buffer that was given back");
  }

  // Sends everything that was posted, from the start, on one flow.
  void FinishHonestly() {
    const size_t flow = in_.Below(flows_.size());
    Join(flow);
    std::vector<uint64_t> numbers;
    for (const Posted& posted : posted_) numbers.push_back(posted.number);
    const int64_t until = NowNs() + kLongestNs;
    for (const uint64_t number : numbers) {
      const uint64_t total = FuzzSize(number);
      const std::vector<std::byte> frame = FlowChunk(
          {.request = number, .offset = 0, .total = total, .length = static_cast<uint32_t>(total)});
      // Test reads the express flow, so stop when no request is left to test.
      for (std::span<const std::byte> left(frame); !left.empty() && !posted_.empty();) {
        left = left.subspan(flows_[flow].SendAvailable(left));
        TestAll();
        Require(NowNs() < until, "a receiver reads");
      }
    }
  }

  FuzzInput in_;
  uint64_t connection_;
  std::vector<FuzzSocket> flows_;
  std::vector<FuzzSocket> strangers_;
  Receiver* receiver_ = nullptr;
  std::vector<Posted> posted_;
  std::vector<Posted> done_;
  uint64_t next_ = 0;
  bool tainted_ = false;
};

}  // namespace

void FuzzReceiver(std::span<const uint8_t> bytes) { Case(bytes).Run(); }

}  // namespace nccltune::net
