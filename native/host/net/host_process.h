// SPDX-License-Identifier: Apache-2.0
// One of the two processes: its control connection to the other one, and how it ends.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "abi/nccl_types.h"
#include "common/descriptor.h"
#include "host/net/options.h"

namespace nccltune::host::net {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// Returns the time in nanoseconds of the monotonic clock, which all processes of a machine share.
inline int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return kSecond * now.tv_sec + now.tv_nsec;
}

// Exit statuses of the program.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kCannotRun = 3;
// Exit status of a forked process that only saw the other process end. The parent waits for both
// processes and reports the cause.
inline constexpr int kPeerVanished = 10;
// Exit status of a forked process that completed. It is not 0, because a plugin may call exit(0).
inline constexpr int kRankSucceeded = 11;

// Called before the ranks are forked: only the first of them that fails reports its error. Returns
// false if there is no memory.
bool ShareReport();

enum class PeerMessage : uint8_t {
  kHandles,  // the handles of all listeners, concatenated
  kBarrier,
  kTotals,  // number of messages of each connection, 8 bytes each
  kTotalsTaken,
  kClosing,  // this process starts to close its connections
  kFailure,  // text
  kReport,   // JSON
};

// The control connection, separate from the plugin: framed messages over a stream socket.
class PeerLink {
 public:
  static std::pair<std::unique_ptr<PeerLink>, std::unique_ptr<PeerLink>> Pair();
  // Connects the two processes at the path of a Unix socket, which works across network namespaces.
  // One side listens. The other side retries until `timeout_ms` has passed. Returns null with
  // *error if no connection was made.
  static std::unique_ptr<PeerLink> Connect(bool listens, const std::string& path, int timeout_ms,
                                           std::string* error);

  // Returns the process id of the peer as this process sees it; 0 if it is unknown.
  pid_t peer_process() const;

  void Send(PeerMessage type, std::string_view text);
  // Waits up to `timeout_ms` for messages of the peer and queues them.
  void Poll(int timeout_ms);
  // Removes and returns the oldest queued message of that type.
  std::optional<std::string> Take(PeerMessage type);
  // Returns whether the peer has closed the link and all its messages have been taken.
  bool ended() const { return ended_ && kept_.empty(); }

 private:
  explicit PeerLink(Descriptor socket) : socket_(std::move(socket)) {}

  Descriptor socket_;
  bool ended_ = false;
  std::string unread_;
  std::deque<std::pair<PeerMessage, std::string>> kept_;
};

// An error that the plugin reported after its peer was killed, or had closed its connections. Such
// an error is expected.
struct PeerLossError {
  std::string call;
  std::string result;
};

// Used by one thread at a time.
class HostProcess {
 public:
  // `peer` is the process id of rank 1 if rank 0 may send it signals, else 0.
  // From now on, a signal ends this process if Look is not called for twice the timeout.
  HostProcess(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer);

  const NetCheckOptions& options() const { return options_; }
  int rank() const { return rank_; }

  // Reports a failure and ends the process at once, because threads and calls of the plugin may
  // still use everything. If the other process has failed before, only that one reports.
  [[noreturn]] void Fail(const std::string& text);
  // Handles an error that the plugin function `call` returned. The error is a failure unless the
  // loss of the other process explains it.
  void PluginError(const std::string& where, const char* call, abi::Result result);

  // Reads messages of the other process, for at most `wait_ms`. Ends the process if the other one
  // has failed. Postpones the signal that ends a process whose plugin does not return.
  void Look(int wait_ms = 0);
  void Send(PeerMessage type, std::string_view text) { link_->Send(type, text); }
  // Returns the oldest message of that type, if one has arrived.
  std::optional<std::string> Take(PeerMessage type);
  std::string Await(PeerMessage type);
  // Waits until both processes have called Barrier.
  void Barrier();

  // Forgets the last round (from opening the plugin to closing it).
  void StartRound();

  // Returns whether the other process has started to close its connections.
  bool peer_closing() const { return peer_closing_; }

  // Kills the other process. From then on the plugin must report its loss.
  void KillPeer();
  bool peer_killed() const { return peer_killed_; }
  const std::optional<PeerLossError>& loss() const { return loss_; }

 private:
  bool ExpectsLoss();

  const NetCheckOptions& options_;
  const int rank_;
  const unsigned most_seconds_;  // without progress
  std::unique_ptr<PeerLink> link_;
  const pid_t peer_;
  bool peer_closing_ = false;
  bool peer_killed_ = false;
  std::optional<PeerLossError> loss_;
};

}  // namespace nccltune::host::net
