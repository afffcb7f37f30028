// SPDX-License-Identifier: Apache-2.0
// What the two processes say to each other beside the plugin: a stream socket with framed messages.
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

namespace nccltune::host::net {

enum class Word : uint8_t {
  kHandles,  // of all listeners, one behind the other
  kBarrier,
  kTotals,  // messages of each connection, 8 bytes each
  kTotalsTaken,
  kClosing,  // connections are closed from now on
  kFailure,  // when (8 bytes) and what
  kReport,   // JSON
};

// For one thread alone.
class PeerLink {
 public:
  // Both ends of one link.
  static std::pair<std::unique_ptr<PeerLink>, std::unique_ptr<PeerLink>> Pair();
  // At a port of 127.0.0.1, or at a socket of that path in the file system, which is reached from
  // every network namespace. One side listens, the other one tries until `timeout_ms` is over. Null
  // and *error if nobody is met.
  static std::unique_ptr<PeerLink> Meet(bool listens, const std::string& place, int timeout_ms,
                                        std::string* error);

  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Of the peer that was met at a path, as this process sees it; else 0.
  pid_t peer_process() const;

  // False when the peer is gone.
  bool Say(Word word, std::string_view text = {});

  // Waits up to `timeout_ms` for anything to come from the peer or for `other_fd` (-1: none) to be
  // readable, and keeps what came.
  void Listen(int timeout_ms, int other_fd = -1);

  // The oldest kept message of that kind.
  std::optional<std::string> Take(Word word);
  bool Has(Word word) const;

  // The peer ended, and everything it said was read.
  bool ended() const { return ended_; }

 private:
  explicit PeerLink(int fd) : fd_(fd) {}
  void Read();

  int fd_;
  bool ended_ = false;
  std::string unread_;
  std::deque<std::pair<Word, std::string>> kept_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_PEER_LINK_H_
