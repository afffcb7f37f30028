// SPDX-License-Identifier: Apache-2.0
// Tracks whether the work that a communicator has enqueued in streams is complete. For this it
// records CUDA events after the library's own operations, and after some of NCCL's messages.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/lane/message_lane.h"

namespace nccltune::sendrecv {

// Returns the processor's time counter. Unlike a system clock, reading it touches no memory. The
// caller must measure the counter's rate and allow for jumps.
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
// Call those with the communicator's mutex held.
class EnqueuedWork {
 public:
  using Clock = std::chrono::steady_clock;

  explicit EnqueuedWork(CudaDriver& driver) : driver_(driver) {}

  // Tracks NCCL's messages with this peer from now on.
  void TrackPeer(int peer);
  // Notes that NCCL is being called for messages with these peers. Call BeginNative before those
  // NCCL calls.
  void BeginNative(std::span<const int> peers);
  // The work that a group has enqueued in one stream.
  struct StreamWork {
    Stream stream = nullptr;
    bool ours = false;            // some operations are the library's own
    std::span<const int> native;  // the peers of messages that NCCL carries
  };
  // Notes the work of a group that was enqueued, and records an event after it. If NCCL carries the
  // whole group, records an event only every few milliseconds: an event after every small message
  // makes such messages a third slower. Captured work gets no event. An event covers all earlier
  // work of its stream.
  void Enqueued(const StreamWork& work);

  // Remembers the last group, all of which NCCL carried in one stream. Call Remember after
  // Enqueued, which forgets the previous group. Returns a number for BeginRepeat, or 0 if the group
  // has no event, for example because it is captured.
  uint64_t Remember(Stream stream, std::span<const int> peers);
  void Forget();
  // Notes that the remembered group is repeated. Returns false if another group was enqueued since,
  // or if an event is due. Call BeginRepeat instead of BeginNative, and EndRepeat instead of
  // Enqueued.
  bool BeginRepeat(uint64_t number) {
    if (number != last_.number || Ticks() - last_.ticks >= last_.max_ticks) return false;
    last_.repeat.store(Repeat::kCalling, std::memory_order_release);
    return true;
  }
  void EndRepeat() { last_.repeat.store(Repeat::kCalled, std::memory_order_release); }

  // Returns whether all recorded events have completed, and no event is missing because CUDA
  // refused.
  bool IsComplete();
  // Records missing events in `streams`, the streams of the present calls. Returns whether no NCCL
  // call is in progress and all recent NCCL messages then have an event. Messages without an event
  // count as complete after 10 s.
  bool EnsureEvents(std::span<const Stream> streams);
  // Notes that a peer is lost. If a message with the peer has no event, records one event after all
  // work of the CUDA context.
  void PeerLost(int peer);
  // Returns whether NCCL may be waiting for ever for a peer that was lost at the time `lost`.
  // Returns false during the first second after the loss.
  bool MayWaitFor(int peer, Clock::time_point lost);

  // Frees all events. All work must be complete.
  void Clear();

 private:
  // An event that is put back into `idle_` when its last owner is destroyed.
  using SharedEvent = std::shared_ptr<void>;
  struct RecordedEvent {
    SharedEvent event;
    Clock::time_point at;
  };
  // NCCL's messages with one peer.
  struct Messages {
    bool calling = false;
    bool lost = false;  // the peer is lost; from then on each message with it gets an event
    // The event after the last message in each stream, or null if there is none yet.
    std::map<Stream, SharedEvent> native;
    SharedEvent context_event;  // recorded when the peer was lost, after all work of the context
  };

  SharedEvent NewSharedEvent();
  // Whether the last group was repeated after Remember. No event follows a repeat.
  enum class Repeat : uint8_t { kNone, kCalling, kCalled };
  // The remembered group. `number` is 0 if there is none.
  struct LastGroup {
    uint64_t number = 0;
    uint64_t ticks = 0;      // when the group was remembered
    uint64_t max_ticks = 0;  // an event is due when this many ticks have passed
    std::atomic<Repeat> repeat = Repeat::kNone;
    Stream stream = nullptr;
    std::vector<int> peers;
  };

  // Records in `messages_` that the last group was repeated. Call NoteRepeat before reading
  // `messages_`.
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
  std::vector<Event> idle_;  // Must precede the next two members: destroying them puts events here.
  std::map<Stream, RecordedEvent> recorded_;
  std::map<int, Messages> messages_;  // by peer
  bool last_group_tracked_ = false;   // whether the last group has an event or will get one
  // CUDA refused an event. So it is unknown whether the work is complete, and nothing is freed.
  bool untracked_ = false;
};

}  // namespace nccltune::sendrecv
