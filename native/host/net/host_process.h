// SPDX-License-Identifier: Apache-2.0
//
// The state of one of the two processes: its watched threads, the control connection to the other
// process, and the first failure.
#ifndef NCCLTUNE_HOST_NET_HOST_PROCESS_H_
#define NCCLTUNE_HOST_NET_HOST_PROCESS_H_

#include <sys/eventfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/tuner_types.h"
#include "common/descriptor.h"
#include "host/net/options.h"
#include "host/net/peer_link.h"

namespace nccltune::host::net {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// Returns the time in nanoseconds of the monotonic clock, which all processes of a machine share.
inline int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return kSecond * now.tv_sec + now.tv_nsec;
}

// Stores the first failure of this process. Any thread may report a failure.
class FirstFailure {
 public:
  // Stores the text if no failure is stored yet. Always returns false, so that callers can return
  // the result.
  bool Fail(std::string text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.load(std::memory_order_relaxed)) {
      text_ = std::move(text);
      at_ns_ = NowNs();
      failed_.store(true, std::memory_order_release);
    }
    return false;
  }

  // Stores a failure of the other process if no failure is stored yet, or if the stored failure is
  // later.
  void Adopt(std::string text, int64_t at_ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_.load(std::memory_order_relaxed) && at_ns_ <= at_ns) return;
    text_ = std::move(text);
    at_ns_ = at_ns;
    failed_.store(true, std::memory_order_release);
  }

  bool ok() const { return !failed_.load(std::memory_order_acquire); }

  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

  // Returns the time of the failure on the monotonic clock, which all processes of a machine share.
  int64_t at_ns() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return at_ns_;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::string text_;
  int64_t at_ns_ = 0;
};

// An eventfd that wakes a polling thread.
class Event {
 public:
  Event() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  // Returns a descriptor that is readable after Set, until Clear.
  int fd() const { return event_.fd(); }
  void Set() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd(), &one, sizeof one);
  }
  void Clear() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd(), &count, sizeof count);
  }

 private:
  Descriptor event_;
};

// An error that the plugin reported after its peer was killed, or had closed its
// connections. Such an error is expected.
struct PeerLossError {
  std::string call;
  std::string result;
  int64_t at_ns = 0;
};

class HostProcess {
 public:
  // `peer` is the process id of rank 1 if rank 0 may send it signals, else 0.
  HostProcess(const NetCheckOptions& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer);

  const NetCheckOptions& options() const { return options_; }
  int rank() const { return rank_; }
  FirstFailure& first_failure() { return first_failure_; }

  // Runs each function in a thread of its own and returns when all have ended. Returns true if
  // nothing failed in either process. If a plugin call does not return within the timeout, the
  // process exits.
  bool Run(const std::vector<std::function<void()>>& parts);

  // Does the same as Run. While the functions run, rank 0 kills the other process if the options
  // require this.
  bool RunAndKill(const std::vector<std::function<void()>>& parts);

  // Resets the state of the last round (from opening the plugin to closing it). Both processes must
  // have finished that round.
  void StartRound();

  // Waits until both processes have called Barrier. Returns false if something failed in one of
  // them.
  bool Barrier();
  // Waits for a message of the other process. Returns false if something failed meanwhile.
  bool Await(PeerMessage type, std::string* text);
  bool Send(PeerMessage type, std::string_view text) { return link_->Send(type, text); }

  // For use in the threads that Run starts. Post queues a message to the other process. Received
  // returns true and sets *text if a message of that type has arrived, else false. Neither function
  // blocks.
  void Post(PeerMessage type, std::string text);
  bool Received(PeerMessage type, std::string* text);

  // Returns whether all threads must stop, because something failed or the other process is lost.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  // Records a failure and stops all threads. Always returns false, so that callers can return it.
  bool Fail(std::string text);
  // Handles an error that the plugin function `call` returned. The error is a failure unless the
  // loss of the other process explains it. Returns false.
  bool PluginError(const std::string& where, const char* call, abi::Result result);

  // Returns whether the other process has started to close its connections.
  bool peer_closing() const { return peer_closing_.load(std::memory_order_acquire); }

  // Return whether and when the other process was killed, and the error that the plugin reported
  // after that.
  bool peer_killed() const { return killed_at_ns() != 0; }
  int64_t killed_at_ns() const { return killed_at_ns_.load(std::memory_order_acquire); }
  const std::optional<PeerLossError>& loss() const { return loss_; }

  // Ends a failed run and returns the exit status. Sends the failure to the other process. Rank 0
  // also waits for the failure of the other process, because the earlier of the two is reported.
  // Prints the failure if this process is the one that reports.
  int Finish();

 private:
  bool RunWatched(const std::vector<std::function<void()>>& parts, int64_t kill_at_ns);
  void ReceiveFromPeer();
  void SendPosted();
  bool ExpectsLoss();

  const NetCheckOptions& options_;
  int rank_;
  std::unique_ptr<PeerLink> link_;
  pid_t peer_;
  Event wake_;
  std::mutex mail_mutex_;
  std::vector<std::pair<PeerMessage, std::string>> outbox_;
  std::vector<std::pair<PeerMessage, std::string>> inbox_;
  FirstFailure first_failure_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> peer_closing_{false};
  std::atomic<int64_t> killed_at_ns_{0};
  bool peer_failed_ = false;
  std::optional<PeerLossError> loss_;  // written by the progress thread and read after it has ended
};

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

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_HOST_PROCESS_H_
