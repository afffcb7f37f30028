// SPDX-License-Identifier: Apache-2.0
// Sends file descriptors of GPU memory between ranks. Each rank of a communicator has one
// nonblocking datagram socket. A rank is identified by its place, the index of its record in the
// segment (segment.h). A random token in the record is part of the socket's address, so another
// user of the machine cannot bind the address first.
//
// A communicator has one inbox for the chunks that its peers send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/token.h"
#include "sendrecv/cuda/mapped_chunks.h"
#include "sendrecv/identity.h"

namespace nccltune::sendrecv {

class Segment;
struct SegmentMemory;

// One datagram. It describes consecutive chunks of an exported entry. The chunks' file descriptors
// are attached to the datagram.
struct ChunkMessage {
  // The kernel allows at most 253 descriptors in a datagram.
  static constexpr size_t kMaxChunks = 64;

  // Set by Mailbox::Send: the token of the receiver's process, which only this user can read.
  // The kernel drops datagrams without it (Mailbox::Open), so other users cannot fill the socket.
  ProcessToken to = {};
  ProcessToken process;
  uint64_t place = 0;   // the sender's place in the segment
  uint64_t number = 0;  // number of the exported entry
  uint64_t first = 0;   // index of the first chunk in the entry
  uint64_t count = 0;
  std::array<uint64_t, kMaxChunks> bytes = {};
};

static_assert(sizeof(ChunkMessage) == 64 + ChunkMessage::kMaxChunks * 8);
static_assert(offsetof(ChunkMessage, to) == 0);

class Mailbox {
 public:
  enum class SendResult : uint8_t {
    kSent,
    kFull,  // the socket is full; retry later
    kGone,  // the peer has ended or has no mailbox, or the system refuses the datagram
  };

  struct Received {
    int64_t user = -1;  // user id of the sender, as the kernel reports it; -1 if not reported
    ChunkMessage datagram;
    // One for each of the `datagram.count` chunks, or fewer if this process has reached its limit
    // of descriptors.
    std::vector<Descriptor> descriptors;
  };

  // Creates the socket of a rank. Returns null if the system refuses. `segment` must outlive the
  // mailbox. The caller stores token() in RankRecord::mailbox before it sets the state kJoined, and
  // sets the state kLeft before it destroys the mailbox.
  static std::unique_ptr<Mailbox> Open(Segment& segment);

  const Token& token() const { return token_; }
  // Returns whether the rank at `place` has published a mailbox.
  bool HasPeer(size_t place) const;
  // Sends a datagram to the rank at `place`.
  SendResult Send(size_t place, ChunkMessage datagram, const std::vector<Descriptor>& descriptors);
  // Reads one datagram and returns it. Returns nothing if there is no datagram or the datagram is
  // invalid. `any` is set to whether a datagram was read.
  std::optional<Received> Receive(bool* any);

 private:
  Mailbox(Segment& segment, const Token& token, Descriptor socket)
      : segment_(segment), token_(token), socket_(std::move(socket)) {}

  Segment& segment_;
  Token token_;
  Descriptor socket_;
};

// Most chunks of one exported entry. With the smallest chunks, of 2 MiB, they hold 8 GiB.
inline constexpr size_t kMaxEntryChunks = 4096;

// Imports received chunks and keeps them until they are mapped. Not thread-safe.
class Inbox {
 public:
  struct ReceivedChunks {
    std::vector<ChunkMemory> chunks;  // consecutive chunks, from the first one
    bool refused = false;             // importing a chunk failed
  };

  // `memory` has the records of all ranks that may send.
  Inbox(const CudaDriver& driver, const SegmentMemory& memory, Mailbox& mailbox)
      : importer_(driver), memory_(memory), mailbox_(mailbox) {}
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Reads the datagrams that have arrived. Returns false if there may be more.
  bool ReadAll();
  // Returns the chunks that were received for an exported entry of the rank at `place`. Returns
  // null if there are none.
  const ReceivedChunks* Find(size_t place, uint64_t number) const;
  // Drops the chunks that were received for one entry.
  void Drop(size_t place, uint64_t number);
  // Drops the chunks of all entries that the rank at `place` no longer exports. `exported` returns
  // whether the rank still exports the entry of a number.
  void DropUnless(size_t place, const std::function<bool(uint64_t)>& exported);

 private:
  using Key = std::pair<size_t, uint64_t>;
  void Accept(const Mailbox::Received& received);
  void Release(const ReceivedChunks& delivery) const;

  MappedChunks importer_;
  const SegmentMemory& memory_;
  Mailbox& mailbox_;
  std::map<Key, ReceivedChunks> deliveries_;
};

}  // namespace nccltune::sendrecv
