// SPDX-License-Identifier: Apache-2.0
//
// Tracks the work that a communicator has enqueued in streams, and whether it is complete. It
// records events after the library's own operations, and after some of NCCL's messages.
#ifndef NCCLTUNE_SENDRECV_ENQUEUED_WORK_H_
#define NCCLTUNE_SENDRECV_ENQUEUED_WORK_H_

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
#include "sendrecv/message_lane.h"

namespace nccltune::sendrecv {

// Reads the processor's time counter. Unlike the system's clocks it reads no memory. The caller
// must measure its rate and allow for jumps.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  uint64_t ticks = 0;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

// Thread-safe, except for the functions about the last group (Remember, BeginRepeat, EndRepeat).
// Those are for the thread that holds the communicator's mutex.
class EnqueuedWork {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EnqueuedWork(CudaDriver& driver) : driver_(driver) {}

  // Tracks NCCL's messages with this peer from now on.
  void TrackPeer(int peer);
  // Called before NCCL's calls for messages with these peers.
  void BeginNative(std::span<const int> peers);
  // The work that a group has enqueued in one stream.
  struct StreamWork {
    Stream stream = nullptr;
    bool ours = false;            // some operations are the library's
    std::span<const int> native;  // the peers of messages that NCCL carries
  };
  // Called after a group was enqueued. An event after each of NCCL's small messages would make them
  // a third slower. So an event is recorded only every few milliseconds; it covers all earlier
  // messages.
  void Enqueued(const StreamWork& work);

  // Remembers the last group, which NCCL carried alone in one stream. Call it after Enqueued, which
  // forgets the group before. Returns a number for BeginRepeat; 0: the group is captured.
  uint64_t Remember(Stream stream, std::span<const int> peers);
  void Forget();
  // Called instead of BeginNative and Enqueued if the last group is repeated. Returns false if
  // another group came between, or if an event is due.
  bool BeginRepeat(uint64_t number) {
    if (number != last_.number || Ticks() - last_.ticks >= last_.max_ticks) return false;
    last_.repeat.store(Repeat::kCalling, std::memory_order_release);
    return true;
  }
  void EndRepeat() { last_.repeat.store(Repeat::kCalled, std::memory_order_release); }

  // Returns whether all recorded events have completed.
  bool IsComplete();
  // Records missing events in `streams`, the streams of the present calls. Returns whether all
  // recent work has an event then.
  bool EnsureEvents(std::span<const Stream> streams);
  // Called when a peer is lost. If some message with it has no event, records an event of the whole
  // context.
  void PeerLost(int peer);
  // Returns whether NCCL may be waiting for ever for a peer that was lost at that time.
  bool MayWaitFor(int peer, Clock::time_point lost);

  // Frees all events. All work must be complete.
  void Clear();

 private:
  // An event that returns to `idle_` when its last user drops it.
  using SharedEvent = std::shared_ptr<void>;
  struct RecordedEvent {
    SharedEvent event;
    Clock::time_point at;
  };
  // NCCL's messages with one peer.
  struct Messages {
    bool calling = false;
    bool lost = false;  // the peer is lost; since then each message with it has an event
    // the event after the last message in each stream; null: none yet
    std::map<Stream, SharedEvent> native;
    SharedEvent context_event;  // recorded when the peer was lost, after all work of the context
  };

  SharedEvent NewSharedEvent();
  // Whether the last group was repeated after it was remembered. Repeats have no event.
  enum class Repeat : uint8_t { kNone, kCalling, kCalled };
  // The last group, if it is known.
  struct LastGroup {
    uint64_t number = 0;
    uint64_t ticks = 0;      // when it was remembered
    uint64_t max_ticks = 0;  // an event is due when this many ticks have passed
    std::atomic<Repeat> repeat = Repeat::kNone;
    Stream stream = nullptr;
    std::vector<int> peers;
  };

  // Adds the repeats of the last group to `messages_`. Called before those are read.
  void NoteRepeat();
  void ForgetLast();
  // Records an event after all work in the stream. Returns false if CUDA refuses.
  bool RecordEvent(Stream stream);
  bool LacksEvent(Stream stream) const;

  LastGroup last_;
  uint64_t numbers_ = 0;
  const Clock::time_point made_ = Clock::now();
  const uint64_t ticks_made_ = Ticks();
  CudaDriver& driver_;
  std::mutex mutex_;
  std::vector<Event> idle_;  // Declared before the members whose destruction returns events to it.
  std::map<Stream, RecordedEvent> recorded_;
  std::map<int, Messages> messages_;  // by peer
  bool last_group_tracked_ = false;   // whether the last group has an event or will get one
  // an event could not be recorded, so completion is unknown and nothing is freed
  bool untracked_ = false;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ENQUEUED_WORK_H_
