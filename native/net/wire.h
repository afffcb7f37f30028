// SPDX-License-Identifier: Apache-2.0
// The wire format: encoding and checked decoding. Numbers are little-endian. Every frame starts
// with its type. Every frame from a peer is checked here before use. A flow is one TCP connection;
// several flows form one connection of NCCL.
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

// Release of the wire format. A peer with another release is refused, and both processes log both
// numbers. Since release 2, an acceptor can ask for fewer flows.
inline constexpr uint16_t kWireRelease = 2;

inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kWelcomeBytes = 32;
inline constexpr size_t kDataHeaderBytes = 32;
inline constexpr size_t kReverseFrameBytes = 16;

inline constexpr uint32_t kLongestChunk = 1U << 20;
inline constexpr uint64_t kLargestRequest = uint64_t{1} << 40;
inline constexpr uint16_t kMostFlows = 65;  // including the express flow (for small messages)

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

// The answer to a hello.
struct Welcome {
  uint16_t release = kWireRelease;
  WelcomeStatus status = WelcomeStatus::kTaken;
  // For kFewerFlows: number of flows for a new attempt, including the express flow; 0 if no attempt
  // is possible.
  uint16_t flows = 0;
};

// The header of a chunk: `length` bytes at `offset` of a request with `total` bytes.
struct DataHeader {
  uint64_t request = 0;
  uint64_t offset = 0;
  uint64_t total = 0;
  uint32_t length = 0;
};

// A frame from the receiver to the sender: kAck, kWaiting or kBye.
struct ReverseFrame {
  FrameType type = FrameType::kAck;
  uint64_t value = 0;  // for kAck: number of frames read completely on this flow
};

std::array<std::byte, kHelloBytes> Encode(const Hello& hello);
std::array<std::byte, kWelcomeBytes> Encode(const Welcome& welcome);
std::array<std::byte, kDataHeaderBytes> Encode(const DataHeader& header);
std::array<std::byte, kReverseFrameBytes> Encode(const ReverseFrame& frame);

// Each decoder returns nothing for invalid bytes. If the release is not ours, only `release`, a
// hello's `token` and a welcome's `status` are set.
std::optional<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
std::optional<Welcome> DecodeWelcome(std::span<const std::byte, kWelcomeBytes> bytes);
std::optional<ReverseFrame> DecodeReverseFrame(
    std::span<const std::byte, kReverseFrameBytes> bytes);

// A frame from the sender to the receiver: the header of a chunk, or a bye of the same length.
struct ForwardFrame {
  FrameType type = FrameType::kData;
  DataHeader data;
};
// Returns nothing if the bytes are invalid, or if the frame has a chunk that is too long or not
// valid for its request (OnGrid in arrivals.h).
std::optional<ForwardFrame> DecodeForwardFrame(std::span<const std::byte, kDataHeaderBytes> bytes);
std::array<std::byte, kDataHeaderBytes> EncodeForwardBye();

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_WIRE_H_
