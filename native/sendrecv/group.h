// SPDX-License-Identifier: Apache-2.0
//
// The sends and receives of one group: told of, decided, and enqueued.
#ifndef NCCLTUNE_SENDRECV_GROUP_H_
#define NCCLTUNE_SENDRECV_GROUP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sendrecv/decision.h"
#include "sendrecv/driver.h"
#include "sendrecv/fifo.h"
#include "sendrecv/lane.h"
#include "sendrecv/plan.h"
#include "sendrecv/staging.h"

namespace nccltune::sendrecv {

// Where this process finds an allocation of its peer; 0: it cannot reach it.
using Resolve = std::function<DeviceAddress(uint64_t allocation, uint64_t offset)>;

// An address as the peer knows it.
struct Place {
  uint64_t allocation = 0;
  uint64_t offset = 0;
};

// One end of a lane with what belongs to it on this side.
struct Port {
  LaneEnd* end = nullptr;
  // Of a sender, made when it is first needed; null: there is none.
  std::function<Staging*()> staging;
  // What was pushed from there last: copies in the stream to the peer come after it.
  std::optional<Staging::Before> staged;
  // Its first byte, if the peer reaches it by now.
  std::function<std::optional<Place>()> staging_place;
  // The receiver's buffer; null: it cannot be reached.
  std::function<Fifo*()> fifo;
  // Of our own, for copies beside the application's. Made when they are first needed.
  std::array<Stream, PlanStream::kKinds> streams = {};
  std::array<Event, PlanStream::kKinds> joined = {};
  Event forked = nullptr;
  // Under capture; a graph may have them as long as it lives.
  std::vector<Stream> captured;
  Resolve resolve;
  // Maps what the peer has offered meanwhile.
  std::function<void()> look;
  bool nearby = false;  // the peer is in this process, and may well wait for this very call
  std::string name;     // "rank 3 to rank 5"
};

struct Message {
  Port* port = nullptr;
  size_t turn = 0;  // in the order of the application's calls
  DeviceAddress address = 0;
  uint64_t bytes = 0;
  uint64_t allocation = 0;  // as the peer knows it
  uint64_t offset = 0;
  bool possible = false;  // see Circumstances
  bool small = false;     // below the floor, on both sides: NCCL's without a word
  // A graph is made of it, and runs as often as the application likes: it cannot be counted.
  bool captured = false;
};

// The messages of one communicator in one stream.
struct Batch {
  std::vector<Message> messages;
  Stream stream = nullptr;
  Driver* driver = nullptr;
};

enum class Path : uint8_t { kNative, kPushed, kStaged, kPulled, kFifo };

struct Outcome {
  struct Way {
    Path path = Path::kNative;
    bool first = false;  // decided here
  };
  // By batch and message, in the order given. NCCL was called for the native ones.
  std::vector<std::vector<Way>> ways;
  // Empty: well. The communicators are of no use any more otherwise.
  std::string error;
  // Enqueues what comes behind NCCL's part, where that is in progress: to be called when it is
  // done, with the batches as they were. False: CUDA refused.
  std::function<bool()> rest;
  enum class Cause : uint8_t {
    kRefused,  // by CUDA or NCCL
    kPeer,     // it has given up
    kUsage,    // the application calls otherwise here than there
  };
  Cause cause = Cause::kRefused;
};

struct Surroundings {
  Policy policy;
  // Waits a moment for peers, and is asked whether there is still time for it. Never for long:
  // `bytes` is what a wait may save of a copy engine's time, or 0.
  std::function<bool(uint64_t bytes)> moment;
  // Waits until somebody else has done something, as long as it takes: a ring of messages is full.
  std::function<void()> pause;
  // As `moment`, for a peer that may capture the same message.
  std::function<bool()> capture;
  // NCCL has more to do in the group than what comes to `native`.
  bool others = false;
  // NCCL's part of the group, enqueued beside ours: of each batch the messages it carries. Called
  // once unless there is an error before. Of communicators that do not block it may be done later.
  enum class Native : uint8_t { kDone, kInProgress, kRefused };
  std::function<Native(const std::vector<std::vector<size_t>>& messages)> native;
};

// All batches are one operation to NCCL, so that none is waited for before all of them
// are enqueued.
Outcome RunGroup(const std::vector<Batch>& batches, const Surroundings& surroundings);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_GROUP_H_
