// SPDX-License-Identifier: Apache-2.0
// The wire format: encoding and checked decoding. Numbers are little-endian. Every frame starts
// with its type. Every frame from a peer is checked here before use. A flow is one TCP connection;
// several flows form one connection of NCCL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/token.h"
#include "net/socket.h"

namespace nccltune::net {

// Records which bytes of a request have arrived. A request is cut into chunks only at multiples of
// a granule. Both peers derive the granule from the request's size. So the receiver recognises
// bytes that arrive twice, even if the two copies were cut differently. This code makes no system
// call.

// Returns the granule of a request of `total` bytes: a power of two from 8 KiB to 1 MiB.
uint64_t Granule(uint64_t total);

// Returns whether `length` bytes at `offset` are a valid chunk of a request of `total` bytes. A
// valid chunk starts at a multiple of the granule, and ends at another multiple or at the request's
// end. An empty chunk is valid only for an empty request.
bool OnGrid(uint64_t total, uint64_t offset, uint64_t length);

// The granules of one request that have arrived. Chunks passed to the functions must be valid
// (OnGrid).
class Arrivals {
 public:
  void Reset(uint64_t total);

  // Returns whether any byte of the chunk has not arrived yet. For an empty chunk: whether the
  // chunk has not arrived.
  bool AnyMissing(uint64_t offset, uint64_t length) const;

  // Marks the chunk as arrived. Returns the number of bytes that had not arrived before.
  uint64_t Mark(uint64_t offset, uint64_t length);

 private:
  uint64_t total_ = 0;
  uint64_t granule_ = 0;
  std::vector<bool> arrived_;
};

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
// valid for its request (OnGrid).
std::optional<ForwardFrame> DecodeForwardFrame(std::span<const std::byte, kDataHeaderBytes> bytes);
std::array<std::byte, kDataHeaderBytes> EncodeForwardBye();

// The 128-byte handle that NCCL transfers from a listener to its connector. The handle comes from
// another host, so every field is checked. In the last eight bytes, the connector stores the number
// of its connect attempt.

inline constexpr size_t kHandleBytes = 128;
using Handle = std::span<std::byte, kHandleBytes>;
// A handle has room for five IPv6 or fourteen IPv4 addresses. For a device with more NICs, the
// handle contains the first ones.
inline constexpr size_t kMostAddressesV6 = 5;
inline constexpr size_t kMostAddressesV4 = 14;

// The decoded content of a handle.
struct Invitation {
  uint16_t release = kWireRelease;
  Token token = {};
  std::vector<SocketEndpoint> ends;  // at least one, all of the same family
};

void WriteHandle(const Invitation& invitation, Handle handle);
// Returns nothing if the handle is invalid or is not nccltune's. If the handle has another release
// of the wire format, only `release` is set.
std::optional<Invitation> ReadHandle(Handle handle);

// Returns the token of a handle that ReadHandle has accepted.
Token TokenOf(Handle handle);

// Returns the number of the connect attempt that SetAttempt stored; 0 before NCCL's first call of
// connect.
uint64_t AttemptOf(Handle handle);
void SetAttempt(Handle handle, uint64_t attempt);

}  // namespace nccltune::net
