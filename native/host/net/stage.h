// SPDX-License-Identifier: Apache-2.0
// One of the two processes: its threads under watch, its word with the other process, and the first
// thing that went wrong.
#ifndef NCCLTUNE_HOST_NET_STAGE_H_
#define NCCLTUNE_HOST_NET_STAGE_H_

#include <sys/types.h>

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
#include "host/net/event.h"
#include "host/net/options.h"
#include "host/net/peer_link.h"
#include "host/net/verdict.h"

namespace nccltune::host::net {

// An error that the plugin reported after its peer had been killed or stopped, or had closed.
struct Loss {
  std::string call;
  std::string result;
  int64_t at_ns = 0;
};

class Stage {
 public:
  // `peer` is the process of rank 1 where rank 0 may send it signals, else 0.
  Stage(const Options& options, int rank, std::unique_ptr<PeerLink> link, pid_t peer);

  const Options& options() const { return options_; }
  int rank() const { return rank_; }
  Verdict& verdict() { return verdict_; }

  // Runs each function in a thread of its own, and returns when all have ended; true if nothing
  // went wrong anywhere. A call of the plugin that does not return ends the process.
  bool Run(const std::vector<std::function<void()>>& parts);

  // As Run; rank 0 kills, stops and continues the other process meanwhile, as the options say.
  bool RunDisturbed(const std::vector<std::function<void()>>& parts);

  // Forgets what ended the last round; both processes are at its end.
  void StartRound();

  // Both processes are here; false if something went wrong in one of them.
  bool Barrier();
  // Waits for a message of the other process; false if something went wrong meanwhile.
  bool Await(Word word, std::string* text);
  bool Say(Word word, std::string_view text) { return link_->Say(word, text); }

  // The same from a thread of Run, without waiting: to the other process, and what came from it.
  void Post(Word word, std::string text);
  bool Received(Word word, std::string* text);

  // Ends everything that runs: something failed, or the other process is lost.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  // False always: for "return".
  bool Fail(std::string text);
  // The plugin returned `result` from `call`: a failure, unless the other process is lost. False.
  bool PluginError(const std::string& where, const char* call, abi::Result result);

  // The other process said that it closes its connections now.
  bool peer_closing() const { return peer_closing_.load(std::memory_order_acquire); }

  // Whether the other process was killed or stopped for good, since when, and what the plugin said.
  bool peer_disturbed() const { return disturbed_at_ns_.load(std::memory_order_acquire) != 0; }
  int64_t disturbed_at_ns() const { return disturbed_at_ns_.load(std::memory_order_acquire); }
  const std::optional<Loss>& loss() const { return loss_; }
  bool peer_ended() const { return link_->ended(); }

  // The last word where something went wrong: tells the other process, lets rank 0 hear what failed
  // there first, prints the failure where that is this process's task, and gives the exit status.
  int Finish();

 private:
  bool RunWatched(const std::vector<std::function<void()>>& parts, bool disturb);
  void HearPeer();
  void SayPosted();
  void Disturb(int64_t now_ns);
  bool ExpectsLoss();

  const Options& options_;
  int rank_;
  std::unique_ptr<PeerLink> link_;
  pid_t peer_;
  Event wake_;
  std::mutex mail_mutex_;
  std::vector<std::pair<Word, std::string>> outbox_;
  std::vector<std::pair<Word, std::string>> inbox_;
  Verdict verdict_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> peer_closing_{false};
  std::atomic<int64_t> disturbed_at_ns_{0};
  int64_t disturbing_since_ns_ = 0;
  int disturbances_ = 0;
  bool failed_there_ = false;
  std::optional<Loss> loss_;  // written by the progress thread, read after it
};

// Exit statuses of the program.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kCannotRun = 3;
// Of a forked process that saw nothing wrong but the other one's end: whoever reaps both has the
// cause.
inline constexpr int kPeerVanished = 10;
// Of a forked process that came to its end: a plugin may call exit(0).
inline constexpr int kWell = 11;

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_STAGE_H_
