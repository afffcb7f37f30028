// SPDX-License-Identifier: Apache-2.0
//
// What a communicator has put into streams, and whether it is over: events behind its own
// operations and behind NCCL's messages, of which not each has one.
#ifndef NCCLTUNE_SENDRECV_UNDERWAY_H_
#define NCCLTUNE_SENDRECV_UNDERWAY_H_

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
#include "sendrecv/ticks.h"

namespace nccltune::sendrecv {

// For any thread, but what is said of a last group: that is for who makes calls.
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

  // The last group was of NCCL's messages alone, in one stream: behind Enqueued, which forgets what
  // was. The number that it is known by until there is another; 0: it is captured.
  uint64_t Remember(Stream stream, std::span<const int> peers);
  void Forget();
  // The last group comes again, instead of BeginNative and Enqueued. False: it is not the last one
  // any more, or an event is wanted behind it.
  bool BeginAgain(uint64_t number) {
    if (number != last_.number || Ticks() - last_.ticks >= last_.most) return false;
    last_.again.store(Again::kCalling, std::memory_order_release);
    return true;
  }
  void EndAgain() { last_.again.store(Again::kCalled, std::memory_order_release); }

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
    bool gone = false;                // since then each message with it has an event
    std::map<Stream, Moment> native;  // behind the last of them; null: no event is
    Moment everything;                // when it was gone: behind all that the context did
  };

  Moment NewMoment();
  // Whether the last group has come again since it was remembered: without an event.
  enum class Again : uint8_t { kNot, kCalling, kCalled };
  // What the last group was, where it is known.
  struct Last {
    uint64_t number = 0;
    uint64_t ticks = 0;  // when it was remembered
    uint64_t most = 0;   // so many later an event is wanted
    std::atomic<Again> again = Again::kNot;
    Stream stream = nullptr;
    std::vector<int> peers;
  };

  // Before anything is asked of NCCL's messages: those of the last group.
  void CountAgain();
  void ForgetLast();
  // An event behind all that is in the stream. False: CUDA refuses it.
  bool Mark(Stream stream);
  bool IsUnknown(Stream stream) const;

  Last last_;
  uint64_t numbers_ = 0;
  const Clock::time_point made_ = Clock::now();
  const uint64_t ticks_made_ = Ticks();
  CudaDriver& driver_;
  std::mutex mutex_;
  std::vector<Event> idle_;  // before what gives events back to it
  std::map<Stream, Used> used_;
  std::map<int, Messages> messages_;  // by peer
  bool tracked_ = false;              // of the last group it is known whether it is over
  bool lost_ = false;                 // nobody knows when all is over: nothing is given back
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_UNDERWAY_H_
