// SPDX-License-Identifier: Apache-2.0
//
// The library's part of a communicator on one rank: its record in the shared segment, and the lanes
// to peers in the same segment.
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
#include "sendrecv/enqueued_work.h"
#include "sendrecv/exported_memory.h"
#include "sendrecv/group.h"
#include "sendrecv/imported_memory.h"
#include "sendrecv/inline_mutex.h"
#include "sendrecv/nccl_api.h"
#include "sendrecv/segment.h"
#include "sendrecv/verify.h"

namespace nccltune::sendrecv {

// The settings of one rank. Except for `from`, two ranks must have equal ones, or NCCL carries all
// messages between them.
struct SendRecvOptions {
  // Messages of at least this many bytes are worth a copy engine.
  uint64_t from = uint64_t{2} << 20;
  Policy policy;
  vccl::VcclSettings vccl;
  bool dry_run = false;
  bool verify = false;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  // Called before NCCL creates the communicator, on the context that it will use. `key`: see
  // Segment. `rank`: -1 if it is not known yet. Returns null if NCCL must carry all messages, with
  // the reason in `why`.
  static std::shared_ptr<Communicator> Join(std::string_view key, int rank,
                                            const SendRecvOptions& options, std::string* why);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Called when NCCL has created the communicator. All ranks of this host have joined by then.
  void Begin(int rank);
  // Marks the communicator as nonblocking: NCCL's calls may return before they are complete. Call
  // it before any other function.
  void SetNonblocking() { blocks_ = false; }
  bool blocks() const { return blocks_; }

  // Held during each call that uses the communicator.
  InlineMutex& mutex() { return mutex_; }

  // Withdraws exported memory that no message uses. Called before the first message of a group.
  void WithdrawStale();
  // The following functions require the mutex.
  struct Peer;
  // Returns the lane to or from a peer; null: NCCL carries all messages. `make`: create a missing
  // one.
  Port* FindPort(int peer, Role role, bool make);
  // Returns the size in bytes from which on messages with this peer have slots: the lower `from` of
  // the two ranks.
  uint64_t FloorOf(int peer);
  // A message whose contents are compared: its number, which both ranks count alike, and the
  // checksums of its lane.
  struct Checked {
    Verifier* verifier = nullptr;  // null: contents are not compared
    Sums* sums = nullptr;
    uint64_t number = 0;
  };
  Checked NextChecked(int peer, Role role);
  // Maps the memory that the peer has exported since the last call. `is_idle`: see ImportedMemory.
  void MapPeerMemory(int peer, const std::function<bool()>& is_idle);
  // Returns whether no work of the library or of NCCL is in progress. `streams`: those of the
  // present calls, in which events may be recorded.
  bool IsIdle(std::span<const Stream> streams);
  // Returns where the peer finds the memory of a message, or with the vccl policy the buffer.
  ExportLookup FindMemory(int peer, Role role, DeviceAddress address, uint64_t bytes);
  // Makes each stream wait for the present work of the others.
  bool JoinStreams(const std::vector<Stream>& streams);

  // Frees everything. Returns false if work is still in progress or another thread is in a call.
  // Never waits.
  bool Close();

  // Returns whether a living peer has not yet received a message that copy engines carry. Returns
  // false while another thread is in a call. Never waits.
  bool HasUnreceivedSends();

  // Whether a peer is lost or the communicator has failed, so that Failure() must be asked.
  bool needs_check() const { return needs_check_.load(std::memory_order_relaxed); }
  // The work in streams.
  EnqueuedWork& enqueued_work() { return *enqueued_work_; }

  // Marks the communicator as failed and ends all waits on both sides. Thread-safe.
  void Break(const std::string& why) { Abandon(why, RankRecord::kFailed); }
  // The same where the application ends the communicator before its messages are complete: for the
  // peers it is no failure. Later messages of theirs are NCCL's.
  void End(const std::string& why) { Abandon(why, RankRecord::kEnded); }
  // Checks whether the peers are alive. 10 s after a peer is lost, ends the waits for it.
  // Thread-safe.
  void CheckPeers();
  // Returns a line for each incomplete message. Thread-safe.
  std::string DescribeIncompleteMessages();
  // Returns why the communicator cannot be used any more. Thread-safe.
  struct FailureInfo {
    std::string why;  // empty: it can be used
    nccl::Result result = abi::kRemoteError;
  };
  FailureInfo Failure();

  CudaDriver& driver() { return *driver_; }
  const SendRecvOptions& options() const { return options_; }
  const std::string& key() const { return key_; }
  int rank() const { return rank_.load(); }
  // Returns the number of the next communicator made from this one. All ranks count alike.
  uint64_t NextChild() { return children_++; }

 private:
  Communicator(std::string_view key, const SendRecvOptions& options);

  void Abandon(const std::string& why, RankRecord::Abandoned how);

  std::unique_ptr<Peer> ConnectPeer(int rank);
  std::unique_ptr<Peer> ConnectPeerAt(int rank, size_t place);
  Peer* FindPeer(int rank);
  int RankAt(size_t place);
  // Like IsIdle, but ignores NCCL's messages that have no event.
  bool EverythingIsComplete();
  bool HasUnreceivedSends(const Peer& peer) const;
  bool IsInUse(uint64_t allocation) const;
  struct WatchedPeer;
  bool IsLost(const WatchedPeer& peer, bool processes, std::string* why);
  void FindLostPeers(bool processes);
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
  // Null if the system has none. Then NCCL carries messages in memory without a legacy handle.
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<ExportedMemory> exported_;
  bool blocks_ = true;
  std::atomic<int> rank_ = -1;
  std::atomic<uint64_t> children_ = 0;

  // by rank; null: on another host or with other settings
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Verifier> verifier_;  // null: contents are not compared
  std::vector<Event> join_events_;

  std::mutex lanes_mutex_;
  // A peer that this rank has exchanged messages with.
  struct WatchedPeer {
    size_t place = 0;
    std::vector<std::pair<LaneMemory*, std::string>> lanes;  // with their names
    std::string lost_why;       // why the peer is lost; empty: it is alive
    bool released = false;      // waits for it have been ended
    Clock::time_point lost_at;  // when it was found to be lost
  };
  std::map<int, WatchedPeer> watched_;  // by rank
  FailureInfo failure_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_COMMUNICATOR_H_
