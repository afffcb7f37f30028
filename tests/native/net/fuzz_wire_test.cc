// SPDX-License-Identifier: Apache-2.0
// Runs fixed fuzz cases without a fuzzer, so that every build runs them.
#include "net/fuzz_socket.h"
#include "net/wire.h"
#include "testing.h"

namespace nccltune::net {
namespace {

std::vector<uint8_t> RandomBytes(FuzzKind kind, std::mt19937_64& random, size_t most) {
  std::vector<uint8_t> bytes(2 + random() % most);
  std::ranges::generate(bytes, [&] { return static_cast<uint8_t>(random()); });
  bytes.front() = static_cast<uint8_t>(kind);
  return bytes;
}

TEST(FuzzWire, Decoders) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) FuzzWire(RandomBytes(FuzzKind::kDecoders, random, 130));
  // Mutates valid frames: random bytes are rarely almost valid.
  const auto mutate = [&](std::span<const std::byte> good) {
    for (int i = 0; i < 5'000; ++i) {
      std::vector<uint8_t> bytes = {static_cast<uint8_t>(FuzzKind::kDecoders)};
      for (const std::byte byte : good) bytes.push_back(std::to_integer<uint8_t>(byte));
      for (uint64_t left = random() % 4; left != 0; --left) {
        const size_t at = 1 + random() % good.size();
        bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1U << (random() % 8)));
      }
      FuzzWire(bytes);
    }
  };
  Hello hello;
  hello.flow = 1;
  hello.flows = 3;
  mutate(Encode(hello));
  mutate(Encode(Welcome{}));
  mutate(Encode(DataHeader{.request = 3, .offset = 8192, .total = 20'000, .length = 8192}));
  mutate(
      Encode(DataHeader{.request = 3, .offset = 0, .total = kLargestRequest, .length = 1 << 20}));
  mutate(EncodeForwardBye());
  mutate(Encode(ReverseFrame{FrameType::kAck, 9}));
  std::array<std::byte, kHandleBytes> handle{};
  Invitation invitation;
  // With a port of one bit, which a mutation takes away.
  invitation.ends = {WithPort(FuzzDevice().nics.front().address, 4096)};
  WriteHandle(invitation, handle);
  mutate(handle);
  // As many addresses of IPv6 as fit, and more bytes like theirs behind.
  handle[6] = std::byte{6};
  handle[7] = std::byte{kMostAddressesV6};
  std::fill(handle.begin() + 24, handle.end(), std::byte{0x10});
  mutate(handle);
}

TEST(FuzzWire, Receivers) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 200; ++i) FuzzWire(RandomBytes(FuzzKind::kReceiver, random, 400));
}

TEST(FuzzWire, Senders) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 60; ++i) FuzzWire(RandomBytes(FuzzKind::kSender, random, 400));
}

}  // namespace
}  // namespace nccltune::net
