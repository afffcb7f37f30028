// SPDX-License-Identifier: Apache-2.0
//
// What a communicator has put into streams, and whether it is over: events behind its own
// operations and behind NCCL's messages, of which not each has one.
#ifndef NCCLTUNE_SENDRECV_UNDERWAY_H_
#define NCCLTUNE_SENDRECV_UNDERWAY_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sendrecv/cuda_driver.h"
#include "sendrecv/lane.h"

namespace nccltune::sendrecv {

// A group of small messages alone, in one stream. When one like it comes again at once, which is
// what programs do that send small ones, nothing of it has to be looked up.
struct SmallGroup {
  static constexpr size_t kMost = 16;
  struct One {
    int peer = 0;
    Role role = Role::kSender;
    uint64_t below = 0;      // bytes that are small
    LaneEnd* end = nullptr;  // null: there is no lane yet, or never will be
  };
  std::array<One, kMost> messages;
  size_t count = 0;
  Stream stream = nullptr;
  std::chrono::steady_clock::time_point until;
};

// For any thread, but what is said of small groups: that is for who makes calls.
class Underway {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Underway(CudaDriver& driver) : driver_(driver) {}

  // NCCL's messages with the peer are of interest from now on.
  void Meet(int peer);
  // Before a call of NCCL with messages to or from the peers.
  void BeginNative(std::span<const int> peers);
  // What a group has put into a stream.
  struct Part {
    Stream stream = nullptr;
    bool ours = false;            // operations of ours
    std::span<const int> native;  // peers of messages of NCCL's
  };
  // An event behind each small message of NCCL's would make it a third slower: one in a while is
  // recorded, behind all before it.
  void Enqueued(const Part& part);

  // The last group, if it was a small one; of no message where it is not known any more.
  const SmallGroup& small() const { return small_; }
  // Behind Enqueued, which forgets it.
  void Remember(const SmallGroup& group);
  void Forget();
  // Instead of BeginNative and Enqueued, for one like the last.
  void BeginAgain() { again_.store(true, std::memory_order_release); }
  void EnqueuedAgain() { again_.store(false, std::memory_order_release); }

  // All that has an event is over.
  bool IsOver();
  // All but what is long forgotten has one. `streams`: those of the present calls, where events may
  // be recorded.
  bool HasEvents(std::span<const Stream> streams);
  // The peer is gone: an event of everything is recorded, if some message with it has none.
  void Gone(int peer);
  // NCCL may wait for ever for a peer that is gone since then.
  bool WaitsFor(int peer, Clock::time_point gone);

  // All is over: gives everything back.
  void Clear();

 private:
  // An event, which is used again when nobody asks for it any more.
  using Moment = std::shared_ptr<void>;
  struct Used {
    Moment moment;
    Clock::time_point at;
  };
  // NCCL's messages with a peer.
  struct Messages {
    bool calling = false;
    std::map<Stream, Moment> native;  // behind the last of them; null: no event is
    Moment everything;                // when it was gone: behind all that the context did
  };

  Moment NewMoment();
  // An event behind all that is in the stream.
  void Mark(Stream stream);
  bool IsUnknown(Stream stream) const;

  CudaDriver& driver_;
  std::mutex mutex_;
  std::vector<Event> idle_;  // before what gives events back to it
  std::map<Stream, Used> used_;
  std::map<int, Messages> messages_;  // by peer
  SmallGroup small_;
  std::atomic<bool> again_ = false;  // NCCL is called with messages of it
  bool lost_ = false;                // nobody knows when all is over: nothing is given back
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_UNDERWAY_H_
