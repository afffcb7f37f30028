// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/plan.h"

#include <algorithm>
#include <utility>

namespace nccltune::sendrecv {
namespace {

Operation Write(size_t stream, const Part& part, Flag* flag) {
  return {.kind = Operation::Kind::kWrite, .stream = stream, .flag = flag, .value = part.value};
}

Operation Wait(size_t stream, const Part& part, Flag* flag) {
  return {.kind = Operation::Kind::kWait, .stream = stream, .flag = flag, .value = part.value};
}

Operation Reset(size_t stream, Flag* flag) {
  return {.kind = Operation::Kind::kWrite, .stream = stream, .flag = flag, .value = 0};
}

Operation Copy(size_t stream, DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return {.kind = Operation::Kind::kCopy, .stream = stream, .to = to, .from = from, .bytes = bytes};
}

bool Is(const Part& part, Part::Kind kind) { return part.kind == kind; }
bool IsStaged(const Part& part) {
  return Is(part, Part::Kind::kStaged) || Is(part, Part::Kind::kLeft);
}

// Builds one plan.
class Planner {
 public:
  Planner(std::span<const Part> parts, bool native) : parts_(parts) {
    plan_.streams.push_back({});
    std::vector<size_t> lanes;
    bool several = false;
    for (const Part& part : parts) {
      if (Is(part, Part::Kind::kAwait)) continue;
      several = several || IsStaged(part) || !part.chunks.empty();
      if (std::ranges::count(lanes, part.lane) == 0) lanes.push_back(part.lane);
    }
    // One lane alone needs no stream of its own: what is behind it waits for peers only, who have
    // our `ready` by then.
    here_ = lanes.size() == 1 && !native && !several;
  }

  Plan Make() {
    for (const Part& part : parts_) {
      if (Is(part, Part::Kind::kAwait)) Add(Write(0, part, part.ready));
    }
    for (const Part& part : parts_) {
      if (Is(part, Part::Kind::kCopy)) {
        const size_t beside = part.again ? PlanStream::kOfGraph : PlanStream::kToPeer;
        Send(part, here_ ? 0 : Forked(part.lane, beside), part.from);
      }
      if (IsStaged(part)) SendStaged(part);
      if (!part.chunks.empty()) Pass(part);
    }
    for (size_t stream = 1; stream < plan_.streams.size(); ++stream) {
      if (marked_[stream]) {
        plan_.after.push_back({.kind = Operation::Kind::kJoin, .stream = stream});
      }
    }
    for (const Part& part : parts_) {
      if (Is(part, Part::Kind::kAwait)) plan_.after.push_back(Wait(0, part, part.done));
      if (part.again && Is(part, Part::Kind::kAwait)) plan_.after.push_back(Reset(0, part.done));
      if (Is(part, Part::Kind::kEmpty)) plan_.after.push_back(Write(0, part, part.done));
    }
    return std::move(plan_);
  }

 private:
  void Add(const Operation& operation) { plan_.before.push_back(operation); }
  void AddFork(size_t stream, size_t other) {
    Add({.kind = Operation::Kind::kFork, .stream = stream, .other = other});
  }
  // The last mark of a stream counts.
  void Mark(size_t stream) {
    if (stream == 0) return;
    marked_[stream] = true;
    Add({.kind = Operation::Kind::kMark, .stream = stream});
  }

  // A stream of the plan; true: it is new in it.
  bool Find(PlanStream wanted, size_t* stream) {
    const auto first = plan_.streams.begin() + 1;
    const auto found = std::find(first, plan_.streams.end(), wanted);
    *stream = static_cast<size_t>(found - plan_.streams.begin());
    if (found != plan_.streams.end()) return false;
    plan_.streams.push_back(wanted);
    marked_.resize(plan_.streams.size());
    return true;
  }
  size_t Forked(size_t lane, size_t kind = PlanStream::kToPeer) {
    size_t stream = 0;
    if (Find({.lane = lane, .kind = kind}, &stream)) AddFork(stream, 0);
    return stream;
  }

  void Send(const Part& part, size_t stream, DeviceAddress from) {
    if (!part.there) Add(Wait(stream, part, part.ready));
    if (part.again) Add(Reset(stream, part.ready));
    if (part.piece == 0 || part.piece >= part.bytes || part.again) {
      Add(Copy(stream, part.to, from, part.bytes));
    } else {
      SendPieces(part, stream, from);
    }
    Add(Write(stream, part, part.done));
    // What was staged is over for the application before it is sent.
    if (Is(part, Part::Kind::kCopy)) Mark(stream);
  }

  // A copy engine stays with a stream as long as this has a copy that could run, so each piece is
  // in another stream than the one before.
  void SendPieces(const Part& part, size_t stream, DeviceAddress from) {
    size_t beside = 0;
    const size_t kind = stream == 0 ? PlanStream::kBeside : PlanStream::kBesideToPeer;
    Find({.lane = part.lane, .kind = kind}, &beside);
    size_t here = stream;
    size_t other = beside;
    for (uint64_t at = 0; at < part.bytes; at += part.piece) {
      if (at > 0) {
        std::swap(here, other);
        AddFork(here, other);
      }
      Add(Copy(here, part.to + at, from + at, std::min(part.piece, part.bytes - at)));
    }
    if (here != stream) AddFork(stream, here);
  }

  void SendStaged(const Part& part) {
    const size_t staging = Forked(part.lane, PlanStream::kToStaging);
    for (const Staging::Before& other : part.before) {
      Add({.kind = Operation::Kind::kWait,
           .stream = staging,
           .flag = other.done,
           .value = other.value});
    }
    Add(Copy(staging, part.staging, part.from, part.bytes));
    if (Is(part, Part::Kind::kLeft)) Add(Write(staging, part, part.ready));
    Mark(staging);
    if (Is(part, Part::Kind::kLeft)) return;
    size_t stream = 0;
    Find({.lane = part.lane, .kind = PlanStream::kToPeer}, &stream);
    AddFork(stream, staging);
    Send(part, stream, part.staging);
  }

  // Through the slots of the receiver's buffer, in order on each channel.
  void Pass(const Part& part) {
    const bool fills = Is(part, Part::Kind::kFill);
    for (size_t i = 0; i < part.chunks.size(); ++i) {
      const Fifo::Chunk& chunk = part.chunks[i];
      // In the lane's own stream always: its chunks are in order whatever stream the application's
      // messages are in.
      const size_t stream = Forked(part.lane, PlanStream::kToChannel + chunk.channel);
      LaneMemory::Channel& channel = part.channels[chunk.channel];
      const auto number = static_cast<uint32_t>(chunk.number);
      const auto flag = [&](Operation::Kind kind, Flag* which, uint32_t value) {
        Add({.kind = kind, .stream = stream, .flag = which, .value = value});
      };
      if (fills) {
        if (chunk.number > part.steps) {
          flag(Operation::Kind::kWait, &channel.emptied,
               number - static_cast<uint32_t>(part.steps));
        }
        Add(Copy(stream, chunk.at, part.from + chunk.offset, chunk.bytes));
        flag(Operation::Kind::kWrite, &channel.filled, number);
      } else {
        flag(Operation::Kind::kWait, &channel.filled, number);
        Add(Copy(stream, part.to + chunk.offset, chunk.at, chunk.bytes));
        flag(Operation::Kind::kWrite, &channel.emptied, number);
      }
      const bool last = i + 1 == part.chunks.size() || part.chunks[i + 1].channel != chunk.channel;
      if (last) Mark(stream);
    }
  }

  std::span<const Part> parts_;
  bool here_ = false;
  Plan plan_;
  std::vector<bool> marked_ = {false};
};

}  // namespace

Plan MakePlan(std::span<const Part> parts, bool native) { return Planner(parts, native).Make(); }

}  // namespace nccltune::sendrecv
