// SPDX-License-Identifier: Apache-2.0
#include "net/fuzz_socket.h"
#include "net/wire.h"
#include "standard.h"

namespace nccltune::net {

Device FuzzDevice() {
  Nic nic;
  nic.name = "lo";
  auto* const address = reinterpret_cast<sockaddr_in*>(&nic.address.storage);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Device device;
  device.name = "lo";
  device.nics = {nic};
  device.members = {0};
  return device;
}

ConnectionContext FuzzContext() {
  NetSettings settings;
  settings.flows = 2;
  settings.threads = 2;
  settings.eager_bytes = 1024;
  return {.settings = settings, .log = Log(nullptr, 0, ""), .traffic_class = -1};
}

FuzzSocket::FuzzSocket(const SocketEndpoint& end)
    : socket_(socket(end.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto* const to = reinterpret_cast<const sockaddr*>(&end.storage);
  Require(connect(socket_.fd(), to, end.length()) == 0, "a listener can be reached");
}

size_t FuzzSocket::SendAvailable(std::span<const std::byte> bytes) {
  if (!open() || bytes.empty()) return 0;
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  return WriteSome(socket_.fd(), {&part, 1}).bytes;
}

bool FuzzSocket::Hear(std::vector<std::byte>* heard) {
  std::array<std::byte, 1 << 16> bytes;
  while (open()) {
    iovec part = {bytes.data(), bytes.size()};
    const IoResult moved = ReadSome(socket_.fd(), {&part, 1});
    if (moved.would_block()) return true;
    if (moved.error != 0 || moved.bytes == 0) break;
    heard->insert(heard->end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(moved.bytes));
  }
  return false;
}

void FuzzSocket::Reset() {
  if (!open()) return;
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_.Close();
}

namespace {

std::span<const uint8_t> current;

// Copies the first bytes and fills the rest with zeros.
template <size_t kBytes>
std::array<std::byte, kBytes> Padded(std::span<const uint8_t> bytes) {
  std::array<std::byte, kBytes> padded{};
  const size_t given = std::min(bytes.size(), kBytes);
  std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()), given, padded.begin());
  return padded;
}

}  // namespace

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\ninput:", what);
  for (const uint8_t byte : current) std::fprintf(stderr, " %02x", byte);
  std::fputc('\n', stderr);
  std::abort();
}

// Decoding and encoding again must give the same bytes: a decoder must check every field.
void FuzzDecoders(std::span<const uint8_t> bytes) {
  const auto hello_bytes = Padded<kHelloBytes>(bytes);
  if (const std::optional<Hello> hello = DecodeHello(hello_bytes)) {
    if (hello->release == kWireRelease) {
      Require(Encode(*hello) == hello_bytes, "a hello has one encoding");
      Require(hello->flow < hello->flows && hello->flows <= kMostFlows, "a flow is one of all");
    }
  }
  const auto welcome_bytes = Padded<kWelcomeBytes>(bytes);
  if (const std::optional<Welcome> welcome = DecodeWelcome(welcome_bytes)) {
    if (welcome->release == kWireRelease) {
      Require(Encode(*welcome) == welcome_bytes, "a welcome has one encoding");
      Require(welcome->status >= WelcomeStatus{1} && welcome->status <= WelcomeStatus{4},
              "a welcome has a known status");
    }
  }
  const auto forward_bytes = Padded<kDataHeaderBytes>(bytes);
  if (const std::optional<ForwardFrame> forward = DecodeForwardFrame(forward_bytes)) {
    const DataHeader& data = forward->data;
    const bool bye = forward->type == FrameType::kBye;
    Require((bye ? EncodeForwardBye() : Encode(data)) == forward_bytes, "a frame has one encoding");
    Require(data.total <= kLargestRequest && data.offset <= data.total &&
                data.length <= data.total - data.offset && data.length <= kLongestChunk &&
                (bye || OnGrid(data.total, data.offset, data.length)),
            "a chunk is inside its request");
  }
  const auto reverse_bytes = Padded<kReverseFrameBytes>(bytes);
  if (const std::optional<ReverseFrame> frame = DecodeReverseFrame(reverse_bytes)) {
    Require(Encode(*frame) == reverse_bytes, "a reverse frame has one encoding");
    Require(frame->type == FrameType::kAck || frame->type == FrameType::kWaiting ||
                frame->type == FrameType::kBye,
            "a reverse frame has a known type");
  }
  auto handle = Padded<kHandleBytes>(bytes);
  if (const std::optional<Invitation> invitation = ReadHandle(handle)) {
    if (invitation->release == kWireRelease) {
      const size_t most = handle[6] == std::byte{6} ? kMostAddressesV6 : kMostAddressesV4;
      Require(!invitation->ends.empty() && invitation->ends.size() <= most,
              "an invitation has addresses");
      Require(std::ranges::all_of(invitation->ends, [](const auto& end) { return end.port(); }),
              "an address has a port");
      std::array<std::byte, kHandleBytes> again{};
      WriteHandle(*invitation, again);
      Require(std::equal(handle.begin(), handle.begin() + 8, again.begin()),
              "a handle's head has one encoding");
      const std::optional<Invitation> read = ReadHandle(again);
      Require(read && read->ends.size() == invitation->ends.size() &&
                  SameToken(read->token, invitation->token),
              "an invitation can be passed on");
    }
  }
}

void FuzzWire(std::span<const uint8_t> bytes) {
  current = bytes;
  if (bytes.empty()) return;
  const std::span<const uint8_t> rest = bytes.subspan(1);
  switch (static_cast<FuzzKind>(bytes.front() % 4)) {
    case FuzzKind::kDecoders:
      return FuzzDecoders(rest);
    case FuzzKind::kSender:
      return FuzzSender(rest);
    case FuzzKind::kReceiver:
    case FuzzKind::kReceiverAgain:
      return FuzzReceiver(rest);
  }
}

}  // namespace nccltune::net
