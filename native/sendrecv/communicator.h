// SPDX-License-Identifier: Apache-2.0
//
// What a rank has of a communicator beside NCCL's own: its card in the shared segment, and lanes to
// the peers that are there, too.
#ifndef NCCLTUNE_SENDRECV_COMMUNICATOR_H_
#define NCCLTUNE_SENDRECV_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sendrecv/cuda_driver.h"
#include "sendrecv/group.h"
#include "sendrecv/inline_mutex.h"
#include "sendrecv/nccl_api.h"
#include "sendrecv/segment.h"
#include "sendrecv/shares.h"
#include "sendrecv/underway.h"
#include "sendrecv/verify.h"

namespace nccltune::sendrecv {

// The modes must be alike on two ranks, or NCCL carries all between them.
struct Options {
  uint64_t from = uint64_t{2} << 20;  // bytes of messages that are worth a copy engine
  Policy policy;
  FifoSettings fifo;
  bool dry_run = false;
  bool verify = false;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  // Before NCCL makes the communicator, on the context that it will use. `key`: see Segment.
  // `rank`: -1 where it is not known yet. Null: NCCL carries all, and `why` says why.
  static std::shared_ptr<Communicator> Join(std::string_view key, int rank, const Options& options,
                                            std::string* why);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // NCCL has made it, so that every rank has joined that ever will.
  void Begin(int rank);
  // NCCL's calls may come back before they are done. Before anything else.
  void DoNotBlock() { blocks_ = false; }
  bool blocks() const { return blocks_; }

  // One at a time.
  InlineMutex& mutex() { return mutex_; }

  // Before the first of a group's messages: what no message is in any more is taken back.
  void Tidy();
  // The lane to a peer, or from it; null: NCCL carries all. Under the mutex, as what follows.
  struct Peer;
  // `make`: where there is none yet.
  Port* FindPort(int peer, Role role, bool make);
  // Bytes from which on messages between the two have slots: what the lower of both thinks is worth
  // a copy engine.
  uint64_t FloorOf(int peer);
  // Where contents are checked: the number of the port's next message, which the peer counts alike,
  // and its sums.
  struct Checked {
    Verifier* verifier = nullptr;  // null: they are not
    Sums* sums = nullptr;
    uint64_t number = 0;
  };
  Checked NextChecked(int peer, Role role);
  // Maps what the peer has offered meanwhile. `quiet`: nothing of this process is under way.
  void LookAt(int peer, const std::function<bool()>& quiet);
  // Nothing of ours is under way, nor what NCCL carries. `streams`: those of the present calls,
  // where events may be recorded.
  bool IsQuiet(std::span<const Stream> streams);
  Found FindShare(int peer, DeviceAddress address, uint64_t bytes);
  // The buffer that messages to or from a peer go through.
  Found FindFifo(int peer, Role role);
  // Each of the streams waits for what the others have so far.
  bool Tie(const std::vector<Stream>& streams);

  // Gives everything back; false: something of it still runs, or somebody is in a call. Never
  // waits.
  bool Close();

  // A peer has still to receive what was sent to it by copy engines, and may; not while somebody is
  // in a call. Never waits.
  bool HasSent();

  // Somebody is gone, or it has failed: noticed by the watcher, or whoever asked.
  bool troubled() const { return troubled_.load(std::memory_order_relaxed); }
  // What is in streams.
  Underway& underway() { return *underway_; }

  // From any thread, at once. All waits end, on both sides.
  void Break(const std::string& why);
  // From any thread. What waits for peers that are gone ends after a while, if nobody else ends it.
  void Watch();
  // The messages that are not over, a line each. From any thread.
  std::string OpenWords();
  // Why it is of no use any more. From any thread.
  struct Trouble {
    std::string why;  // empty: it is of use
    nccl::Result result = abi::kRemoteError;
  };
  Trouble Failure();

  CudaDriver& driver() { return *driver_; }
  const Options& options() const { return options_; }
  const std::string& key() const { return key_; }
  int rank() const { return rank_.load(); }
  // Of the next communicator that is made from this one, which all its ranks count alike.
  uint64_t NextChild() { return children_++; }

 private:
  Communicator(std::string_view key, const Options& options);

  std::unique_ptr<Peer> Meet(int rank);
  std::unique_ptr<Peer> PeerAt(int rank, size_t place);
  Peer* FindPeer(int rank);
  int RankAt(size_t place);
  // The same, but for messages of NCCL's that no event is behind.
  bool EverythingIsOver();
  bool HasSent(const Peer& peer) const;
  bool IsInUse(uint64_t allocation) const;
  struct Watched;
  bool HasGone(const Watched& peer, bool processes, std::string* why);
  void LookAfter(bool processes);
  static void Release(Watched& peer);
  void Fail(const std::string& why, nccl::Result result);

  const std::string key_;
  const Options options_;
  InlineMutex mutex_;
  std::atomic<bool> troubled_ = false;
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<Underway> underway_;
  std::shared_ptr<Segment> segment_;
  size_t place_ = 0;
  // Null where the system has none: then memory without a legacy handle is NCCL's.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<Offers> offers_;
  bool blocks_ = true;
  std::atomic<int> rank_ = -1;
  std::atomic<uint64_t> children_ = 0;

  std::map<int, std::unique_ptr<Peer>> peers_;  // null: elsewhere
  std::unique_ptr<Verifier> verifier_;          // null: nothing is checked
  std::vector<Event> ties_;

  std::mutex lanes_mutex_;
  // A peer that was met.
  struct Watched {
    size_t place = 0;
    std::vector<std::pair<LaneMemory*, std::string>> lanes;  // with their names
    std::string gone;                                        // why it is of no use any more
    bool released = false;                                   // what waits for it goes on
    Clock::time_point at;                                    // when it was gone
  };
  std::map<int, Watched> watched_;  // by rank
  Trouble failure_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COMMUNICATOR_H_
