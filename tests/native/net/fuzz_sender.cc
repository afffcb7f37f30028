// SPDX-License-Identifier: Apache-2.0
// Fuzzes a sender. The input decides when the peer reads, acknowledges, lies, stalls or
// disconnects. Every frame must be valid, although buffers are overwritten once they are released.
// If the peer never lied, every message must arrive complete.
#include <netinet/tcp.h>

#include "net/clock.h"
#include "net/fuzz_socket.h"
#include "net/sender.h"
#include "net/transport.h"
#include "net/wire.h"
#include "standard.h"

namespace nccltune::net {
namespace {

constexpr size_t kFlows = 3;  // including the express flow
constexpr size_t kMostSenderSteps = 80;

// The listening socket for all cases.
Descriptor& Listening() {
  static Descriptor* const listening = [] {
    SocketResult opened = ListenOn(FuzzDevice().nics.front(), {});
    Require(opened.error == 0, "a listener can be made");
    // A small window, so that large frames are written in parts.
    const int window = 8 << 10;
    const int packet = 1000;
    setsockopt(opened.socket.fd(), SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
    setsockopt(opened.socket.fd(), IPPROTO_TCP, TCP_MAXSEG, &packet, sizeof(packet));
    return new Descriptor(std::move(opened.socket));
  }();
  return *listening;
}

class SenderCase {
 public:
  explicit SenderCase(std::span<const uint8_t> bytes) : in_(bytes), flows_(kFlows) {
    std::array<std::byte, kHandleBytes> handle{};
    Invitation invitation;
    for (std::byte& byte : invitation.token) byte = std::byte{in_.Byte()};
    token_ = invitation.token;
    invitation.ends = {LocalEnd(Listening().fd())};
    WriteHandle(invitation, handle);
    const int64_t until = NowNs() + kLongestNs;
    while (sender_ == nullptr) {
      Require(Connect(FuzzContext(), FuzzDevice(), handle, &sender_) == abi::kSuccess,
              "connect works");
      LetIn();
      Require(NowNs() < until, "a connection comes about");
    }
  }

  void Run() {
    if (in_.Chance()) WarmUp();
    for (size_t step = 0; step < kMostSenderSteps && !in_.empty(); ++step) Step();
    PumpAll();
    Require(tainted_ || sent_.empty(), "what a peer has read is complete");
    Require(tainted_ || AllArrived(), "a message that is complete arrives");
    // Reset before the sender closes; else each of its ports stays in TIME_WAIT for a minute.
    for (Flow& flow : flows_) flow.socket.Reset();
    Close(sender_);
    dialled_.clear();
  }

 private:
  struct Sent {
    uint64_t number = 0;
    TransferRequest* request = nullptr;
    std::vector<std::byte> content;
  };
  struct Flow {
    FuzzSocket socket;
    std::vector<std::byte> heard;
    uint64_t frames = 0;
    uint64_t acknowledged = 0;
  };
  struct Dialled {
    FuzzSocket socket;
    std::vector<std::byte> heard;
  };

  void Step() {
    switch (in_.Byte() % 10) {
      case 0:
      case 1:
        return SendNext();
      case 2:
      case 3:
      case 4:
        return ReadAndAcknowledge(in_.Below(kFlows));
      case 5:
        Read(flows_[in_.Below(kFlows)]);
        return;
      case 6:
        return SendReverseFrame();
      case 7:
        return SendRandomBytes();
      case 8:
        return in_.Below(16) == 0 ? Favour(in_.Below(kFlows)) : Leave();
      default:
        LetIn();
        return TestAll();
    }
  }

  // Lets the sender learn the rates of the flows, and so when a chunk is late.
  void WarmUp() {
    for (int i = 0; i < 5; ++i) SendNext();
    PumpAll();
  }

  void PumpAll() {
    const int64_t until = NowNs() + (tainted_ ? kNsPerMs : kLongestNs);
    while (NowNs() < until && (!sent_.empty() || (!tainted_ && !AllArrived()))) {
      LetIn();
      for (size_t i = 0; i < kFlows; ++i) ReadAndAcknowledge(i);
      TestAll();
    }
  }

  void SendNext() {
    Sent sent;
    sent.number = next_;
    for (size_t i = 0; i < FuzzSize(next_); ++i) sent.content.push_back(FuzzByte(next_, i));
    const abi::Result result =
        Send(sender_, sent.content.data(), sent.content.size(), &sent.request);
    Require(tainted_ || result == abi::kSuccess, "a message can be sent");
    if (sent.request == nullptr) return;
    arrived_[next_].Reset(FuzzSize(next_));
    missing_[next_] = std::max<uint64_t>(FuzzSize(next_), 1);
    ++next_;
    sent_.push_back(std::move(sent));
  }

  void TestAll() {
    for (size_t i = 0; i < sent_.size();) {
      bool done = false;
      size_t bytes = SIZE_MAX;
      const abi::Result result = Test(sent_[i].request, &done, &bytes);
      Require(tainted_ || result == abi::kSuccess, "nothing fails before a peer that means well");
      if (!done) {
        ++i;
        continue;
      }
      Require(bytes == FuzzSize(sent_[i].number), "a message has its size");
      // The buffer belongs to the application again: overwrite it.
      std::ranges::fill(sent_[i].content, std::byte{0xee});
      done_.push_back(std::move(sent_[i].content));
      sent_.erase(sent_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  // Accepts flows that connect or reconnect.
  void LetIn() {
    for (;;) {
      SocketResult opened = AcceptOne(Listening().fd(), -1);
      if (!opened.socket) break;
      dialled_.push_back({FuzzSocket(std::move(opened.socket)), {}});
    }
    for (auto at = dialled_.begin(); at != dialled_.end();) {
      const bool stands = at->socket.Hear(&at->heard);
      if (stands && at->heard.size() < kHelloBytes) {
        ++at;
        continue;
      }
      if (at->heard.size() >= kHelloBytes) Welcome(*at);
      at = dialled_.erase(at);
    }
  }

  void Welcome(Dialled& dialled) {
    const std::span<const std::byte> received(dialled.heard);
    const std::optional<Hello> hello = DecodeHello(received.first<kHelloBytes>());
    Require(hello && hello->flows == kFlows, "a sender begins with a hello");
    // A connection of the previous case.
    if (!SameToken(hello->token, token_)) return;
    Flow& flow = flows_[hello->flow];
    flow = Flow{std::move(dialled.socket), {}, 0, 0};
    flow.heard.assign(received.begin() + kHelloBytes, received.end());
    flow.socket.SendBytes(Encode(net::Welcome{}));
  }

  void Read(Flow& flow) {
    if (!flow.socket.open()) return;
    if (!flow.socket.Hear(&flow.heard)) flow.socket.Close();
    size_t at = 0;
    while (flow.heard.size() - at >= kDataHeaderBytes) {
      const std::span<const std::byte> rest = std::span(flow.heard).subspan(at);
      const std::optional<ForwardFrame> forward =
          DecodeForwardFrame(rest.first<kDataHeaderBytes>());
      Require(forward.has_value(), "a sender sends frames");
      const size_t length = kDataHeaderBytes + forward->data.length;
      if (rest.size() < length) break;
      if (forward->type == FrameType::kData) Check(forward->data, rest.subspan(kDataHeaderBytes));
      ++flow.frames;
      at += length;
    }
    flow.heard.erase(flow.heard.begin(), flow.heard.begin() + static_cast<ptrdiff_t>(at));
  }

  void Check(const DataHeader& header, std::span<const std::byte> body) {
    Require(header.request < next_, "a frame is of a message");
    Require(header.total == FuzzSize(header.request), "a frame knows the size of its message");
    for (size_t i = 0; i < header.length; ++i) {
      Require(body[i] == FuzzByte(header.request, header.offset + i), "a frame has its bytes");
    }
    const uint64_t fresh = arrived_[header.request].Mark(header.offset, header.length);
    missing_[header.request] -=
        header.total == 0 ? std::min<uint64_t>(missing_[header.request], 1) : fresh;
  }

  bool AllArrived() const {
    return std::ranges::all_of(missing_, [](const auto& each) { return each.second == 0; });
  }

  void ReadAndAcknowledge(size_t index) {
    Flow& flow = flows_[index];
    Read(flow);
    if (flow.acknowledged == flow.frames) return;
    flow.acknowledged = flow.frames;
    if (!flow.socket.SendBytes(Encode(ReverseFrame{FrameType::kAck, flow.frames})))
      flow.socket.Reset();
  }

  // Reads only the express flow and one other, so long that chunks on the others are late and sent
  // again. Once per case, because it takes time.
  void Favour(size_t index) {
    if (std::exchange(favoured_, true)) return;
    const int64_t until = NowNs() + 400 * kNsPerMs;
    while (NowNs() < until && !sent_.empty()) {
      ReadAndAcknowledge(0);
      ReadAndAcknowledge(index);
      TestAll();
    }
  }

  void SendReverseFrame() {
    Flow& flow = flows_[in_.Below(kFlows)];
    ReverseFrame frame{FrameType::kWaiting, 0};
    if (in_.Chance()) frame = {FrameType::kAck, in_.Below(8)};
    // An acknowledgement may be repeated. One for more than was read is a lie.
    if (frame.type == FrameType::kAck && frame.value > flow.frames) tainted_ = true;
    if (in_.Below(8) == 0) frame.type = FrameType::kBye;
    flow.socket.SendBytes(Encode(frame));
  }

  void SendRandomBytes() {
    Flow& flow = flows_[in_.Below(kFlows)];
    std::vector<std::byte> bytes = in_.Bytes(in_.Below(40));
    if (in_.Chance()) {
      auto frame = Encode(ReverseFrame{FrameType::kAck, flow.frames});
      in_.Mutate(frame);
      bytes.assign(frame.begin(), frame.end());
    }
    if (bytes.size() >= kReverseFrameBytes) {
      const std::optional<ReverseFrame> frame =
          DecodeReverseFrame(std::span(bytes).first<kReverseFrameBytes>());
      if (frame && frame->type == FrameType::kAck && frame->value > flow.frames) tainted_ = true;
    }
    flow.socket.SendBytes(bytes);
    // The data behind it would be misread.
    flow.socket.Reset();
  }

  void Leave() {
    Flow& flow = flows_[in_.Below(kFlows)];
    if (in_.Chance()) {
      flow.socket.Reset();
    } else {
      flow.socket.Close();
    }
  }

  FuzzInput in_;
  Token token_;
  std::vector<Flow> flows_;
  std::list<Dialled> dialled_;
  Sender* sender_ = nullptr;
  std::vector<Sent> sent_;
  std::vector<std::vector<std::byte>> done_;
  std::map<uint64_t, Arrivals> arrived_;
  std::map<uint64_t, uint64_t> missing_;
  uint64_t next_ = 0;
  bool tainted_ = false;
  bool favoured_ = false;
};

}  // namespace

void FuzzSender(std::span<const uint8_t> bytes) { SenderCase(bytes).Run(); }

}  // namespace nccltune::net
