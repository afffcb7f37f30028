// SPDX-License-Identifier: Apache-2.0
//
// Everything that crosses the network: its layout, and its checks. Little-endian; every frame
// begins with its type. What a peer says is looked at here before anybody uses it.
#ifndef NCCLTUNE_NET_WIRE_H_
#define NCCLTUNE_NET_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nccltune::net {

// Of the wire format. A peer of another one is refused, with both numbers in its log and ours.
inline constexpr uint16_t kWireRelease = 1;

inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kWelcomeBytes = 32;
inline constexpr size_t kDataHeaderBytes = 32;
inline constexpr size_t kNoteBytes = 16;

inline constexpr uint32_t kLongestChunk = 1U << 20;
inline constexpr uint64_t kLargestRequest = uint64_t{1} << 40;
inline constexpr uint16_t kMostFlows = 65;  // with the express flow

enum class FrameType : uint8_t {
  kHello = 0xA1,
  kWelcome = 0xA2,
  kData = 0xA3,
  kAck = 0xA4,      // frames read to their end, of all that this flow ever carried
  kWaiting = 0xA5,  // the application has not posted what stands first on this flow
  kBye = 0xA6,      // the end is meant
};

// A secret of one listener; it travels in NCCL's handle.
struct Token {
  std::array<std::byte, 16> bytes = {};
};
// Takes the same time whatever differs.
bool Same(const Token& a, const Token& b);

// The connector's first words on each flow.
struct Hello {
  uint16_t release = kWireRelease;
  Token token;
  uint64_t connection = 0;
  uint16_t flow = 0;   // 0: the express flow
  uint16_t flows = 0;  // of the connection, the express flow among them
};

enum class Verdict : uint8_t { kTaken = 1, kOtherRelease = 2, kUnknownConnection = 3 };

struct Welcome {
  uint16_t release = kWireRelease;
  Verdict verdict = Verdict::kTaken;
};

struct DataHeader {
  uint64_t request = 0;
  uint64_t offset = 0;
  uint64_t total = 0;
  uint32_t length = 0;
};

// kAck, kWaiting, kBye.
struct Note {
  FrameType type = FrameType::kAck;
  uint64_t value = 0;
};

std::array<std::byte, kHelloBytes> Encode(const Hello& hello);
std::array<std::byte, kWelcomeBytes> Encode(const Welcome& welcome);
std::array<std::byte, kDataHeaderBytes> Encode(const DataHeader& header);
std::array<std::byte, kNoteBytes> Encode(const Note& note);

// Nothing: it is not what it should be. A hello or welcome of another release is one, of which only
// the release is to be trusted.
std::optional<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
std::optional<Welcome> DecodeWelcome(std::span<const std::byte, kWelcomeBytes> bytes);
std::optional<Note> DecodeNote(std::span<const std::byte, kNoteBytes> bytes);

// What stands in the sender's direction: data, or a bye as long as a header.
struct Forward {
  FrameType type = FrameType::kData;
  DataHeader data;
};
// Lengths and offsets fit each other and the grid of the request (arrivals.h).
std::optional<Forward> DecodeForward(std::span<const std::byte, kDataHeaderBytes> bytes);
std::array<std::byte, kDataHeaderBytes> EncodeForwardBye();

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_WIRE_H_
