// SPDX-License-Identifier: Apache-2.0
// The library's state of an NCCL communicator on one rank: the rank's record in shared memory
// (segment.h), and the lanes to and from peers on the same host. A lane carries the messages from
// one rank to another (message_lane.h).
#pragma once

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

#include "sendrecv/cuda/connections.h"
#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/group/group.h"
#include "sendrecv/hooks/nccl_api.h"
#include "sendrecv/lane/enqueued_work.h"
#include "sendrecv/lane/kernel_plan.h"
#include "sendrecv/lane/verify.h"
#include "sendrecv/locks.h"
#include "sendrecv/memory/exported_memory.h"
#include "sendrecv/memory/imported_memory.h"
#include "sendrecv/options.h"
#include "sendrecv/peers/segment.h"

namespace nccltune::sendrecv {

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  // Joins the ranks of this host. Returns null and the reason in `why` if NCCL must carry all
  // messages. Call Join before NCCL creates the communicator. The current CUDA context must be the
  // context that NCCL will use. `key` is equal on all ranks of the communicator. `rank` is -1 if it
  // is not known yet.
  static std::shared_ptr<Communicator> Join(std::string_view key, int rank,
                                            const SendRecvOptions& options, std::string* why);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Stores the rank and removes the segment file's name. Call Begin when NCCL has created the
  // communicator. All ranks of this host have joined by then, so none needs the name any more.
  void Begin(int rank);
  // Marks the communicator as nonblocking: NCCL's calls may return before they are complete. Call
  // this before any other function.
  void SetNonblocking() { blocks_ = false; }
  bool blocks() const { return blocks_; }

  // Lock this mutex during each call that uses the communicator.
  InlineMutex& mutex() { return mutex_; }

  // The functions from here to JoinStreams require the mutex.
  //
  // Withdraws exported memory that has changed and that no message uses. Call WithdrawStale before
  // the first message of a group.
  void WithdrawStale();
  struct Peer;
  // Returns this rank's end of the lane to the peer, or from the peer if `role` is the receiver.
  // Creates a missing lane if `make` is set. Returns null if there is no lane; then NCCL carries
  // the messages.
  Port* FindPort(int peer, Role role, bool make);
  // Returns the size in bytes from which a copy engine may carry messages with this peer: the lower
  // `from` of the two ranks. Returns UINT64_MAX if NCCL carries all messages with the peer.
  uint64_t FloorOf(int peer);
  // A message whose contents are compared. Both ranks give the message the same `number`. `sums`
  // are the checksums of its lane.
  struct Checked {
    Verifier* verifier = nullptr;  // null if the contents are not compared
    Sums* sums = nullptr;
    uint64_t number = 0;
  };
  Checked NextChecked(int peer, Role role);
  // Maps the memory that the peer has exported since the last call. `is_idle` returns whether no
  // GPU work is in progress: see ImportedMemory::Update.
  void MapPeerMemory(int peer, const std::function<bool()>& is_idle);
  // Gives back memory that its owner has freed: withdraws this rank's, and unmaps that of peers.
  // Returns whether handles wait for CloseWithdrawn.
  bool GiveBackMemory();
  // See ImportedMemory::CloseWithdrawn.
  void CloseWithdrawn();
  // Returns whether no work of the library or of NCCL is in progress on this communicator. May
  // record events in `streams`, the streams of the present calls. A communicator with messages in
  // CUDA graphs is never idle.
  bool IsIdle(std::span<const Stream> streams);
  // Exports the memory of a message to the peer and returns its state. With the vccl policy,
  // returns the state of the receiver's buffer instead.
  ExportLookup FindMemory(int peer, Role role, DeviceAddress address, uint64_t bytes);
  // Makes each stream wait for the present work of the other streams. Returns false if CUDA
  // refuses.
  bool JoinStreams(const std::vector<Stream>& streams);

  // Frees all resources. Frees nothing and returns false if work is still in progress or another
  // thread is in a call until `limit`.
  bool Close(std::chrono::steady_clock::time_point limit = {});

  // Returns whether a living peer has not yet received a message that copy engines carry. Returns
  // false if another thread is in a call until `limit`.
  bool HasUnreceivedSends(std::chrono::steady_clock::time_point limit);

  // Returns whether a peer is lost or the communicator has failed. If so, call Failure().
  bool needs_check() const { return needs_check_.load(std::memory_order_relaxed); }
  // Returns the object that tracks this communicator's work in streams.
  EnqueuedWork& enqueued_work() { return *enqueued_work_; }

  // Marks the communicator as failed and ends all waits on both sides. Thread-safe.
  void Break(const std::string& why) { Abandon(why, RankRecord::kFailed); }
  // Does the same as Break when the application ends the communicator before its messages are
  // complete. The peers do not treat this end as a failure: NCCL carries their later messages to
  // this rank.
  void End(const std::string& why) { Abandon(why, RankRecord::kEnded); }
  // Checks whether the peers are alive. 10 s after a peer is lost, ends the waits for the lost
  // peers, or for all peers if the communicator has failed. Thread-safe.
  void CheckPeers();
  // Returns a line for each incomplete message. Thread-safe.
  std::string DescribeIncompleteMessages();
  // The error after which the communicator cannot be used any more. Failure() is thread-safe.
  struct FailureInfo {
    std::string why;  // empty if the communicator can be used
    nccl::Result result = abi::kRemoteError;
  };
  FailureInfo Failure();

  CudaDriver& driver() { return *driver_; }
  HelperStreams& helpers() { return helpers_; }
  const SendRecvOptions& options() const { return options_; }
  const std::string& key() const { return key_; }
  int rank() const { return rank_.load(); }
  // Returns a number for the next communicator that is split or shrunk from this one. All ranks get
  // the same number, because they make these calls in the same order.
  uint64_t NextChild() { return children_++; }

 private:
  Communicator(std::string_view key, const SendRecvOptions& options);

  void Abandon(const std::string& why, RankRecord::Abandoned how);

  std::unique_ptr<Peer> ConnectPeer(int rank);
  std::unique_ptr<Peer> ConnectPeerAt(int rank, size_t place);
  Peer* FindPeer(int rank);
  bool ReserveStreams(Role role);
  int RankAt(size_t place);
  void LeavePlaceToNccl(size_t place);
  // Like IsIdle, but ignores CUDA graphs, and messages of NCCL that have no event after them.
  bool EverythingIsComplete();
  bool HasUnreceivedSends(const Peer& peer) const;
  bool IsInUse(uint64_t allocation) const;
  struct WatchedPeer;
  bool IsLost(WatchedPeer& peer, bool processes, std::string* why);
  void FindLostPeers(bool processes);
  void FindExpiredWaits();
  static void Release(WatchedPeer& peer, LaneMemory::Broken state);
  void Fail(const std::string& why, nccl::Result result);

  const std::string key_;
  const SendRecvOptions options_;
  InlineMutex mutex_;
  std::atomic<bool> needs_check_ = false;
  std::unique_ptr<CudaDriver> driver_;
  std::unique_ptr<EnqueuedWork> enqueued_work_;
  std::shared_ptr<Segment> segment_;
  size_t place_ = 0;
  uint64_t left_places_ = 0;  // a bit for each place whose rank was not known in time
  // Null if the system refuses the socket. Then only memory with a legacy CUDA IPC handle can be
  // exported, and NCCL carries messages in other memory.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<ExportedMemory> exported_;
  bool blocks_ = true;
  std::atomic<int> rank_ = -1;
  std::atomic<uint64_t> children_ = 0;

  // By rank. Null if NCCL carries all messages with the peer, for example if the peer is on another
  // host.
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Verifier> verifier_;  // null if the contents are not compared
  std::vector<Event> join_events_;
  HelperStreams helpers_;
  std::unique_ptr<WaitingStreams> waiting_streams_;

  std::mutex lanes_mutex_;
  // A peer that this rank has connected to.
  struct WatchedPeer {
    size_t place = 0;
    std::vector<std::pair<LaneMemory*, std::string>> lanes;  // each lane with its name
    Clock::time_point last_alive;
    std::string lost_why;       // why the peer is lost; empty if it is alive
    bool released = false;      // the waits for this peer have been ended
    Clock::time_point lost_at;  // when the peer was found to be lost
  };
  std::map<int, WatchedPeer> watched_;  // by rank
  FailureInfo failure_;
};

}  // namespace nccltune::sendrecv
