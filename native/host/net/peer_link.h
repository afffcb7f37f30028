// SPDX-License-Identifier: Apache-2.0
// The control connection between the two processes, separate from the plugin: framed messages over
// a stream socket.
#ifndef NCCLTUNE_HOST_NET_PEER_LINK_H_
#define NCCLTUNE_HOST_NET_PEER_LINK_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/descriptor.h"

namespace nccltune::host::net {

enum class PeerMessage : uint8_t {
  kHandles,  // the handles of all listeners, concatenated
  kBarrier,
  kTotals,  // number of messages of each connection, 8 bytes each
  kTotalsTaken,
  kClosing,  // this process starts to close its connections
  kFailure,  // time of the failure (8 bytes) and its text
  kReport,   // JSON
};

// This class is not thread-safe.
class PeerLink {
 public:
  // Creates a connected pair of links.
  static std::pair<std::unique_ptr<PeerLink>, std::unique_ptr<PeerLink>> Pair();
  // Connects the two processes at the path of a Unix socket, which works across network namespaces.
  // One side listens. The other side retries until `timeout_ms` has passed. Returns null with
  // *error if no connection was made.
  static std::unique_ptr<PeerLink> Connect(bool listens, const std::string& path, int timeout_ms,
                                           std::string* error);

  // Returns the process id of the peer as this process sees it; 0 if it is unknown.
  pid_t peer_process() const;

  // Sends a message. Returns false if the peer has closed the link.
  bool Send(PeerMessage type, std::string_view text = {});

  // Waits up to `timeout_ms` for a message of the peer, or for `other_fd` (-1: none) to be
  // readable. Queues the messages received.
  void Poll(int timeout_ms, int other_fd = -1);

  // Removes and returns the oldest queued message of that type.
  std::optional<std::string> Take(PeerMessage type);
  bool Has(PeerMessage type) const;

  // Returns whether the peer has closed the link and all its messages have been read.
  bool ended() const { return ended_; }

 private:
  explicit PeerLink(Descriptor socket) : socket_(std::move(socket)) {}
  void Read();

  Descriptor socket_;
  bool ended_ = false;
  std::string unread_;
  std::deque<std::pair<PeerMessage, std::string>> kept_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_PEER_LINK_H_
