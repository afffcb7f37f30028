// SPDX-License-Identifier: Apache-2.0
//
// The wire format: encoding and checked decoding. Numbers are little-endian. Every frame starts
// with its type. All data from a peer is checked here before use.
#ifndef NCCLTUNE_NET_WIRE_H_
#define NCCLTUNE_NET_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/token.h"

namespace nccltune::net {

// Release of the wire format. A peer with another one is refused; both logs name both numbers.
// Release 2: an acceptor can ask for fewer flows.
inline constexpr uint16_t kWireRelease = 2;

inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kWelcomeBytes = 32;
inline constexpr size_t kDataHeaderBytes = 32;
inline constexpr size_t kReverseFrameBytes = 16;

inline constexpr uint32_t kLongestChunk = 1U << 20;
inline constexpr uint64_t kLargestRequest = uint64_t{1} << 40;
inline constexpr uint16_t kMostFlows = 65;  // including the express flow

enum class FrameType : uint8_t {
  kHello = 0xA1,
  kWelcome = 0xA2,
  kData = 0xA3,
  kAck = 0xA4,      // number of frames read completely on this flow
  kWaiting = 0xA5,  // the request of the next chunk is not posted yet
  kBye = 0xA6,      // regular end of the flow
};

// The first frame that the connector sends on each flow.
struct Hello {
  uint16_t release = kWireRelease;
  Token token = {};  // the listener's token
  uint64_t connection = 0;
  uint16_t flow = 0;   // 0: the express flow
  uint16_t flows = 0;  // flows of the connection, including the express flow
};

inline constexpr uint16_t kFewestFlows = 2;  // including the express flow

enum class WelcomeStatus : uint8_t {
  kTaken = 1,
  kOtherRelease = 2,
  kUnknownConnection = 3,
  kFewerFlows = 4,  // the acceptor is short of file descriptors
};

struct Welcome {
  uint16_t release = kWireRelease;
  WelcomeStatus status = WelcomeStatus::kTaken;
  // For kFewerFlows: the number of flows for a new attempt, including the express flow. 0: none.
  uint16_t flows = 0;
};

struct DataHeader {
  uint64_t request = 0;
  uint64_t offset = 0;
  uint64_t total = 0;
  uint32_t length = 0;
};

// A frame from the receiver to the sender: kAck, kWaiting or kBye.
struct ReverseFrame {
  FrameType type = FrameType::kAck;
  uint64_t value = 0;
};

std::array<std::byte, kHelloBytes> Encode(const Hello& hello);
std::array<std::byte, kWelcomeBytes> Encode(const Welcome& welcome);
std::array<std::byte, kDataHeaderBytes> Encode(const DataHeader& header);
std::array<std::byte, kReverseFrameBytes> Encode(const ReverseFrame& frame);

// Decoders return nothing for invalid bytes. For a hello or welcome of another release, only
// `release` is valid.
std::optional<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
std::optional<Welcome> DecodeWelcome(std::span<const std::byte, kWelcomeBytes> bytes);
std::optional<ReverseFrame> DecodeReverseFrame(
    std::span<const std::byte, kReverseFrameBytes> bytes);

// A frame from the sender to the receiver: data, or a bye of the same length as a header.
struct ForwardFrame {
  FrameType type = FrameType::kData;
  DataHeader data;
};
// Checks that length and offset are valid for the request and on its grid (arrivals.h).
std::optional<ForwardFrame> DecodeForwardFrame(std::span<const std::byte, kDataHeaderBytes> bytes);
std::array<std::byte, kDataHeaderBytes> EncodeForwardBye();

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_WIRE_H_
