// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/plan.h"

#include <algorithm>
#include <utility>

namespace nccltune::sendrecv {
namespace {

Operation Write(size_t stream, const MessageTransfer& transfer, Flag* flag) {
  return {.kind = Operation::Kind::kWrite, .stream = stream, .flag = flag, .value = transfer.value};
}

Operation Wait(size_t stream, const MessageTransfer& transfer, Flag* flag) {
  return {.kind = Operation::Kind::kWait, .stream = stream, .flag = flag, .value = transfer.value};
}

Operation Reset(size_t stream, Flag* flag) {
  return {.kind = Operation::Kind::kWrite, .stream = stream, .flag = flag, .value = 0};
}

Operation Copy(size_t stream, DeviceAddress to, DeviceAddress from, uint64_t bytes) {
  return {.kind = Operation::Kind::kCopy, .stream = stream, .to = to, .from = from, .bytes = bytes};
}

bool Is(const MessageTransfer& transfer, MessageTransfer::Kind kind) {
  return transfer.kind == kind;
}
bool IsStaged(const MessageTransfer& transfer) {
  return Is(transfer, MessageTransfer::Kind::kStagedCopy) ||
         Is(transfer, MessageTransfer::Kind::kStagedForPeer);
}

// Builds one plan.
class Planner {
 public:
  Planner(std::span<const MessageTransfer> transfers, bool native) : transfers_(transfers) {
    plan_.streams.push_back({});
    std::vector<size_t> lanes;
    bool several = false;
    for (const MessageTransfer& transfer : transfers) {
      if (Is(transfer, MessageTransfer::Kind::kPeerCopies)) continue;
      several = several || IsStaged(transfer) || !transfer.channels.empty();
      if (std::ranges::count(lanes, transfer.lane) == 0) lanes.push_back(transfer.lane);
    }
    // The copies of a single lane can run in the application's stream: they delay no copy of
    // another lane. The stream writes all `ready` flags before these copies, so no peer waits for
    // them either.
    in_application_stream_ = lanes.size() == 1 && !native && !several;
  }

  Plan Make() {
    for (const MessageTransfer& transfer : transfers_) {
      if (Is(transfer, MessageTransfer::Kind::kPeerCopies)) Add(Write(0, transfer, transfer.ready));
    }
    for (const MessageTransfer& transfer : transfers_) {
      if (Is(transfer, MessageTransfer::Kind::kCopy)) {
        const size_t beside = transfer.in_graph ? PlanStream::kOfGraph : PlanStream::kToPeer;
        AddCopy(transfer, in_application_stream_ ? 0 : Forked(transfer.lane, beside),
                transfer.from);
      }
      if (IsStaged(transfer)) AddStagedCopy(transfer);
      AddChannels(transfer);
    }
    for (size_t stream = 1; stream < plan_.streams.size(); ++stream) {
      if (marked_[stream]) {
        plan_.after_native.push_back({.kind = Operation::Kind::kJoin, .stream = stream});
      }
    }
    for (const MessageTransfer& transfer : transfers_) {
      if (Is(transfer, MessageTransfer::Kind::kPeerCopies)) {
        plan_.after_native.push_back(Wait(0, transfer, transfer.done));
      }
      if (transfer.in_graph && Is(transfer, MessageTransfer::Kind::kPeerCopies)) {
        plan_.after_native.push_back(Reset(0, transfer.done));
      }
      if (Is(transfer, MessageTransfer::Kind::kBufferedReceive)) {
        plan_.after_native.push_back(Write(0, transfer, transfer.done));
      }
    }
    return std::move(plan_);
  }

 private:
  void Add(const Operation& operation) { plan_.before_native.push_back(operation); }
  void AddFork(size_t stream, size_t other) {
    Add({.kind = Operation::Kind::kFork, .stream = stream, .other = other});
  }
  // Records an event in the stream. A later kJoin waits for the last such event.
  void Mark(size_t stream) {
    if (stream == 0) return;
    marked_[stream] = true;
    Add({.kind = Operation::Kind::kMark, .stream = stream});
  }

  // Sets `stream` to the index of a stream in the plan. Returns true if this call has added the
  // stream.
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

  void AddCopy(const MessageTransfer& transfer, size_t stream, DeviceAddress from) {
    if (!transfer.peer_is_ready) Add(Wait(stream, transfer, transfer.ready));
    if (transfer.in_graph) Add(Reset(stream, transfer.ready));
    if (transfer.piece == 0 || transfer.piece >= transfer.bytes || transfer.in_graph) {
      Add(Copy(stream, transfer.to, from, transfer.bytes));
    } else {
      AddPieces(transfer, stream, from);
    }
    Add(Write(stream, transfer, transfer.done));
    // A staged send is complete for the application before its bytes reach the peer. So the
    // application's stream does not wait for this copy.
    if (Is(transfer, MessageTransfer::Kind::kCopy)) Mark(stream);
  }

  // A copy engine stays with one stream while that stream has a copy to run. So consecutive pieces
  // alternate between two streams, and other copies can run between them.
  void AddPieces(const MessageTransfer& transfer, size_t stream, DeviceAddress from) {
    size_t beside = 0;
    const size_t kind = stream == 0 ? PlanStream::kBeside : PlanStream::kBesideToPeer;
    Find({.lane = transfer.lane, .kind = kind}, &beside);
    size_t here = stream;
    size_t other = beside;
    for (uint64_t at = 0; at < transfer.bytes; at += transfer.piece) {
      if (at > 0) {
        std::swap(here, other);
        AddFork(here, other);
      }
      Add(Copy(here, transfer.to + at, from + at, std::min(transfer.piece, transfer.bytes - at)));
    }
    if (here != stream) AddFork(stream, here);
  }

  void AddStagedCopy(const MessageTransfer& transfer) {
    const size_t staging = Forked(transfer.lane, PlanStream::kToStaging);
    for (const Staging::Completion& other : transfer.wait_for) {
      Add({.kind = Operation::Kind::kWait,
           .stream = staging,
           .flag = other.done,
           .value = other.value});
    }
    Add(Copy(staging, transfer.staging, transfer.from, transfer.bytes));
    if (Is(transfer, MessageTransfer::Kind::kStagedForPeer)) {
      Add(Write(staging, transfer, transfer.ready));
    }
    Mark(staging);
    if (Is(transfer, MessageTransfer::Kind::kStagedForPeer)) return;
    size_t stream = 0;
    Find({.lane = transfer.lane, .kind = PlanStream::kToPeer}, &stream);
    AddFork(stream, staging);
    AddCopy(transfer, stream, transfer.staging);
  }

  void AddChannels(const MessageTransfer& transfer) {
    for (size_t channel = 0; channel < transfer.channels.size(); ++channel) {
      if (transfer.channels[channel].empty()) continue;
      const size_t stream = Forked(transfer.lane, PlanStream::kToChannel + channel);
      for (Operation operation : transfer.channels[channel]) {
        operation.stream = stream;
        Add(operation);
      }
      Mark(stream);
    }
  }

  std::span<const MessageTransfer> transfers_;
  bool in_application_stream_ = false;
  Plan plan_;
  std::vector<bool> marked_ = {false};
};

// The alignment of CUDA's allocations.
constexpr uint64_t kAlignment = 512;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Plan MakePlan(std::span<const MessageTransfer> transfers, bool native) {
  return Planner(transfers, native).Make();
}

std::optional<Staging::Region> Staging::Find(uint64_t bytes) const {
  const uint64_t wanted = Aligned(bytes);
  if (wanted > capacity_) return std::nullopt;
  uint64_t begin = head_;
  // A region is contiguous. If the message does not fit before the end of the ring, skip the bytes
  // up to the end.
  const uint64_t left = capacity_ - begin % capacity_;
  if (wanted > left) begin += left;
  Region region = {
      .at = base_ + begin % capacity_, .wait_for = {}, .begin = begin, .end = begin + wanted};
  for (const HeldRegion& oldest : held_) {
    if (!Overlaps(oldest, region.end)) break;
    const Completion& message = oldest.message;
    if (!Reached(message.done->load(), message.value)) region.wait_for.push_back(message);
  }
  return region;
}

void Staging::Take(const Region& region, Flag& done, uint32_t value) {
  head_ = region.end;
  while (!held_.empty() && Overlaps(held_.front(), head_)) held_.pop_front();
  held_.push_back({.begin = region.begin, .message = {.done = &done, .value = value}});
}

}  // namespace nccltune::sendrecv
