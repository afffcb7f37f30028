// SPDX-License-Identifier: Apache-2.0
//
// What a fuzzer's bytes decide, and what must hold whatever they are.
#ifndef NCCLTUNE_TESTS_NET_FUZZ_INPUT_H_
#define NCCLTUNE_TESTS_NET_FUZZ_INPUT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nccltune::net {

// Ends the process with the words and the input, which a fuzzer takes for a finding.
void Require(bool condition, const char* what);

// Bytes from the front; zeros when there are none left.
class FuzzInput {
 public:
  explicit FuzzInput(std::span<const uint8_t> bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const uint8_t byte = left_.front();
    left_ = left_.subspan(1);
    return byte;
  }
  // 0 to `limit` - 1.
  size_t Below(size_t limit) { return (size_t{Byte()} << 8 | Byte()) % limit; }
  bool Chance() { return (Byte() & 1) != 0; }
  std::vector<std::byte> Bytes(size_t most) {
    std::vector<std::byte> bytes(std::min(most, left_.size()));
    for (std::byte& each : bytes) each = std::byte{Byte()};
    return bytes;
  }
  // Some of the bytes are others, at least one.
  void Mutate(std::span<std::byte> bytes) {
    const size_t changes = 1 + Below(4);
    for (size_t i = 0; i < changes; ++i) bytes[Below(bytes.size())] ^= std::byte(Byte() | 1);
  }

 private:
  std::span<const uint8_t> left_;
};

// Messages of a case: their sizes and bytes are known to both ends. No byte is a frame's first.
constexpr size_t FuzzSize(uint64_t number) {
  constexpr std::array<size_t, 11> kSizes = {40'000, 1,    8192,   0,      100'003, 1024,
                                             8193,   1025, 65'536, 24'576, 300'000};
  return kSizes[number % kSizes.size()];
}
constexpr std::byte FuzzByte(uint64_t number, uint64_t offset) {
  return static_cast<std::byte>((number * 131 + offset * 7 + (offset >> 8) * 13) & 0x7f);
}

// One case each.
void FuzzDecoders(std::span<const uint8_t> bytes);
void FuzzReceiver(std::span<const uint8_t> bytes);
void FuzzSender(std::span<const uint8_t> bytes);

// Any of them, by the first byte: a remainder of four.
enum class FuzzKind : uint8_t { kDecoders, kSender, kReceiver, kReceiverAgain };
void FuzzWire(std::span<const uint8_t> bytes);

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_FUZZ_INPUT_H_
