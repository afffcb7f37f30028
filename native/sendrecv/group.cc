// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace nccltune::sendrecv {
namespace {

// A batch as it is worked through; the steps in their order.
class BatchWork {
 public:
  BatchWork(const Batch& batch, bool receives, const Surroundings& surroundings, Outcome* outcome)
      : messages_(batch.messages),
        stream_(batch.stream),
        driver_(*batch.driver),
        receives_(receives),
        surroundings_(surroundings),
        ways_(batch.messages.size()),
        outcome_(*outcome) {}

  bool EnqueueBefore(bool native) {
    plan_ = MakePlan(parts_, native);
    return Enqueue(plan_.before);
  }
  bool EnqueueAfter() { return Enqueue(plan_.after); }

  // In the order given, which is that of the peer.
  std::vector<size_t> Native() {
    std::ranges::sort(native_);
    return native_;
  }

  void Break() {
    for (const Message& each : messages_) each.port->end->Break();
  }

  std::vector<Outcome::Way> Ways() { return std::move(ways_); }

  const std::vector<Message>& messages() const { return messages_; }

  bool Tell(size_t index) {
    const Message& message = messages_[index];
    LaneEnd& end = *message.port->end;
    if (MayCapture(message)) return Capture(index);
    // What comes behind depends on whether the lane is closed.
    if (IsAsked(message.port) && !TakeAnswers()) return false;
    if (!message.small && (message.captured || IsCrowded(message.port)) && !Close(message)) {
      return false;
    }
    if (message.small || end.closed()) return CallNative(index);
    // As CUDA lets a caller wait whose queue is full.
    while (!end.HasRoom()) surroundings_.pause();
    if (end.broken()) return FailByPeer(message);
    Telling telling;
    telling.circumstances = {.bytes = message.bytes,
                             .possible = message.possible,
                             .group_receives = receives_,
                             .staging = false};
    telling.place = {.allocation = message.allocation, .offset = message.offset};
    const Verdict verdict = end.role() == Role::kSender ? LookForReceiver(message, &telling)
                                                        : First(message, telling.circumstances);
    telling.ready = end.Ready();
    const Arrived arrived =
        end.Arrive(message.bytes, telling.place.allocation, telling.place.offset, verdict);
    ways_[index].first = arrived.first;
    if (!arrived.first && arrived.verdict != Verdict::kClosed && !Agrees(message, arrived)) {
      return false;
    }
    return Follow(index, arrived, std::move(telling));
  }

  // What peers say of messages under capture that were told of here first.
  bool TakeAnswers() {
    return std::ranges::all_of(std::exchange(asked_, {}), [&](const Asked& asked) {
      const Message& message = messages_[asked.index];
      LaneEnd& end = *message.port->end;
      while (!end.IsDecided(asked.number) && !end.broken() && surroundings_.capture()) {
      }
      if (end.broken()) return FailByPeer(message);
      LaneMemory::Replayed* const flags = end.Answer(asked.number);
      if (flags == nullptr) return CallNative(asked.index);
      AddOfGraph(asked.index, flags, Part::Kind::kAwait);
      return true;
    });
  }

 private:
  struct Asked {
    size_t index = 0;
    uint64_t number = 0;
  };

  bool IsAsked(const Port* port) const {
    return std::ranges::any_of(
        asked_, [&](const Asked& asked) { return messages_[asked.index].port == port; });
  }

  bool CallNative(size_t index) {
    messages_[index].port->end->Pass();
    native_.push_back(index);
    return true;
  }

  // A message that both sides capture, in groups that may wait for their peers. The first one of a
  // lane connects the ranks, and one thread may capture both sides.
  bool MayCapture(const Message& message) const {
    const Circumstances circumstances = {.bytes = message.bytes,
                                         .possible = message.possible,
                                         .group_receives = receives_,
                                         .staging = false};
    return message.captured && message.possible && !message.small && surroundings_.policy.graphs &&
           MayWait(circumstances, surroundings_.policy) && !message.port->nearby &&
           !message.port->end->closed() && !message.port->end->IsFresh();
  }

  // Whoever comes second copies, as it alone knows both addresses.
  bool Capture(size_t index) {
    const Message& message = messages_[index];
    LaneEnd& end = *message.port->end;
    while (!end.HasRoom()) surroundings_.pause();
    if (end.broken()) return FailByPeer(message);
    const Captured captured = end.Capture(message.bytes, message.allocation, message.offset);
    if (captured.how == Captured::How::kFirst) {
      asked_.push_back({.index = index, .number = captured.number});
      return true;
    }
    if (captured.how == Captured::How::kDirect && !Close(message)) return false;
    if (captured.how != Captured::How::kSecond) return CallNative(index);
    const Arrived arrived = {.number = captured.number,
                             .first = false,
                             .verdict = Verdict::kCapture,
                             .mine = captured.mine,
                             .theirs = captured.theirs};
    if (!Agrees(message, arrived)) return false;
    message.port->look();
    const DeviceAddress theirs =
        message.port->resolve(captured.theirs.allocation, captured.theirs.offset);
    LaneMemory::Replayed* const flags = end.Accept(theirs != 0);
    if (flags == nullptr) return CallNative(index);
    Part& part = AddOfGraph(index, flags, Part::Kind::kCopy);
    const bool sends = end.role() == Role::kSender;
    part.to = sends ? theirs : message.address;
    part.from = sends ? message.address : theirs;
    return true;
  }

  Part& AddOfGraph(size_t index, LaneMemory::Replayed* flags, Part::Kind kind) {
    const Message& message = messages_[index];
    const bool sends = message.port->end->role() == Role::kSender;
    ways_[index].path = sends == (kind == Part::Kind::kCopy) ? Path::kPushed : Path::kPulled;
    Part part;
    part.kind = kind;
    part.lane = Lane(message.port);
    part.ready = &flags->ready;
    part.done = &flags->done;
    part.value = 1;
    part.bytes = message.bytes;
    part.again = true;
    parts_.push_back(std::move(part));
    return parts_.back();
  }

  bool Fail(const Message& message, const std::string& what) {
    outcome_.error = message.port->name + ": " + what;
    return false;
  }

  bool FailByPeer(const Message& message) {
    outcome_.cause = Outcome::Cause::kPeer;
    return Fail(message, "the communicator has failed");
  }

  // What is known of a message as it is told of.
  struct Telling {
    Circumstances circumstances;
    bool ready = false;                 // the receiver's stream was there already
    Place place;                        // where the peer may copy from or to
    std::optional<Staging::Room> room;  // that the peer is told of
  };

  Verdict First(const Message& message, const Circumstances& circumstances) const {
    return FirstDecides(message.port->end->role(), circumstances, surroundings_.policy);
  }

  // A GPU has one copy engine for all its peers. What is pulled from here is the work of the
  // receiver's, which may have to push as well, while this one's has nothing to do: so a sender
  // waits for its receiver as long as that would cost.
  Verdict LookForReceiver(const Message& message, Telling* telling) {
    Circumstances& circumstances = telling->circumstances;
    const LaneEnd& end = *message.port->end;
    std::optional<Place> staging;
    if (First(message, circumstances) == Verdict::kNative && circumstances.possible) {
      staging = message.port->staging_place();
      circumstances.staging = staging.has_value();
    }
    const Verdict verdict = First(message, circumstances);
    const bool pulled = verdict == Verdict::kPull || verdict == Verdict::kFetch;
    const uint64_t bytes = pulled && !message.port->nearby ? message.bytes : 0;
    while (!end.Told() && surroundings_.moment(bytes)) {
    }
    if (!staging || verdict != Verdict::kFetch || end.Told()) return verdict;
    const Staging& memory = *message.port->staging();
    telling->room = memory.Find(message.bytes);
    if (!telling->room) return Verdict::kNative;
    telling->place = {.allocation = staging->allocation,
                      .offset = staging->offset + (telling->room->at - memory.base())};
    return verdict;
  }

  // A slot is free when what had it is over, which nothing of this group is before it is enqueued.
  bool IsCrowded(const Port* port) {
    return ++counts_[port] > LaneMemory::kSlots / 2 && !port->end->Told();
  }

  bool Close(const Message& message) {
    LaneEnd& end = *message.port->end;
    while (!end.closed()) {
      if (counts_[message.port] >= LaneMemory::kSlots && !end.HasRoom()) {
        return Fail(message, "more than " + std::to_string(LaneMemory::kSlots) +
                                 " messages in one group, and the peer is ahead");
      }
      while (!end.HasRoom()) surroundings_.pause();
      if (end.broken()) return FailByPeer(message);
      if (!end.Close()) {
        outcome_.cause = Outcome::Cause::kUsage;
        return Fail(message,
                    "captured in a graph here and called directly by the peer; unset "
                    "NCCLTUNE_SENDRECV for such programs");
      }
    }
    return true;
  }

  bool Agrees(const Message& message, const Arrived& arrived) {
    const bool sends = message.port->end->role() == Role::kSender;
    const Half& sent = sends ? arrived.mine : arrived.theirs;
    const Half& received = sends ? arrived.theirs : arrived.mine;
    const std::string differs = Disagreement(arrived.number, sent, received);
    if (differs.empty()) return true;
    outcome_.cause = Outcome::Cause::kUsage;
    message.port->end->memory().differs.store(arrived.number);
    return Fail(message, differs);
  }

  bool Follow(size_t index, const Arrived& arrived, Telling telling) {
    if (arrived.verdict == Verdict::kNative || arrived.verdict == Verdict::kClosed) {
      native_.push_back(index);
      return true;
    }
    const Message& message = messages_[index];
    Slot& slot = message.port->end->memory().Of(arrived.number);
    Part part = {.kind = Part::Kind::kAwait,
                 .lane = Lane(message.port),
                 .ready = &slot.ready,
                 .done = &slot.done,
                 .value = FlagValue(arrived.number),
                 .before = {},
                 .bytes = message.bytes,
                 .piece = surroundings_.policy.piece,
                 .there = telling.ready,
                 .chunks = {}};
    if (arrived.verdict == Verdict::kFifo) return Pass(message, index, std::move(part));
    const bool pushed = arrived.verdict == Verdict::kPush;
    ways_[index].path = pushed ? Path::kPushed : Path::kPulled;
    if (!arrived.first && !CopyHere(message, arrived, pushed, &part)) return false;
    const bool leaves = arrived.first && arrived.verdict == Verdict::kFetch;
    const bool stages = !arrived.first && pushed &&
                        HowToSend(telling.ready && !IsBehindStaged(*message.port),
                                  telling.circumstances, surroundings_.policy) == Sending::kStaged;
    Staging* const staging = leaves || stages ? message.port->staging() : nullptr;
    if (staging != nullptr && !telling.room) telling.room = staging->Find(message.bytes);
    if (staging != nullptr && telling.room) {
      // Not before: of a message that goes another way nobody would say that its room is free.
      staging->Take(*telling.room, slot.done, part.value);
      part.kind = leaves ? Part::Kind::kLeft : Part::Kind::kStaged;
      if (stages) message.port->staged = {.done = &slot.done, .value = part.value};
      if (leaves) part.from = message.address;
      part.staging = telling.room->at;
      part.before = std::move(telling.room->before);
      ways_[index].path = Path::kStaged;
    }
    parts_.push_back(std::move(part));
    return true;
  }

  // A receive that is there already may be in another stream than those before it.
  static bool IsBehindStaged(const Port& port) {
    return port.staged && !Reached(port.staged->done->load(), port.staged->value);
  }

  bool CopyHere(const Message& message, const Arrived& arrived, bool pushed, Part* part) {
    part->kind = Part::Kind::kCopy;
    const DeviceAddress theirs =
        message.port->resolve(arrived.theirs.allocation, arrived.theirs.offset);
    if (theirs == 0) return Fail(message, "the peer's memory cannot be reached any more");
    part->to = pushed ? theirs : message.address;
    part->from = pushed ? message.address : theirs;
    return true;
  }

  bool Pass(const Message& message, size_t index, Part part) {
    Fifo* const fifo = message.port->fifo();
    if (fifo == nullptr) return Fail(message, "the receiver's buffer cannot be reached any more");
    const bool sends = message.port->end->role() == Role::kSender;
    part.kind = sends ? Part::Kind::kFill : Part::Kind::kEmpty;
    (sends ? part.from : part.to) = message.address;
    part.chunks = fifo->Take(message.bytes);
    part.channels = message.port->end->memory().channels.data();
    for (const Fifo::Chunk& chunk : part.chunks) {
      part.channels[chunk.channel].told.store(static_cast<uint32_t>(chunk.number));
    }
    part.steps = fifo->settings().steps;
    ways_[index].path = Path::kFifo;
    parts_.push_back(std::move(part));
    return true;
  }

  size_t Lane(Port* port) {
    const auto found = std::ranges::find(ports_, port);
    if (found == ports_.end()) ports_.push_back(port);
    return static_cast<size_t>(std::ranges::find(ports_, port) - ports_.begin());
  }

  bool Enqueue(const std::vector<Operation>& operations) {
    return std::ranges::all_of(operations, [&](const Operation& each) { return Enqueue(each); });
  }

  // Null: CUDA has none.
  Stream StreamOf(size_t number) {
    if (number == 0) return stream_;
    const PlanStream& which = plan_.streams[number];
    Port& port = *ports_[which.lane];
    if (which.kind != PlanStream::kOfGraph) {
      Stream& stream = port.streams[which.kind];
      if (stream == nullptr) stream = driver_.NewStream();
      return stream;
    }
    // It belongs to the capture until that ends, which nobody tells.
    captured_.resize(plan_.streams.size());
    if (captured_[number] == nullptr) {
      captured_[number] = driver_.NewStream();
      if (captured_[number] != nullptr) port.captured.push_back(captured_[number]);
    }
    return captured_[number];
  }

  Event Made(Event& event) {
    if (event == nullptr) event = driver_.NewEvent();
    return event;
  }

  bool Enqueue(const Operation& operation) {
    Stream stream = StreamOf(operation.stream);
    // The application's may well be null, the default stream.
    if (stream == nullptr && operation.stream != 0) return false;
    if (operation.kind == Operation::Kind::kWrite || operation.kind == Operation::Kind::kWait ||
        operation.kind == Operation::Kind::kCopy) {
      return EnqueueIn(stream, operation);
    }
    // Of the application's stream, the first lane's.
    const PlanStream& which = plan_.streams[operation.stream];
    Port& port = *ports_[which.lane];
    Event& joined = port.joined[which.kind];
    switch (operation.kind) {
      case Operation::Kind::kFork:
        return Made(port.forked) != nullptr &&
               driver_.Record(port.forked, StreamOf(operation.other)) &&
               driver_.WaitEvent(stream, port.forked);
      case Operation::Kind::kMark:
        return Made(joined) != nullptr && driver_.Record(joined, stream);
      default:
        return driver_.WaitEvent(stream_, joined);
    }
  }

  bool EnqueueIn(Stream stream, const Operation& operation) {
    switch (operation.kind) {
      case Operation::Kind::kWrite:
        return driver_.WriteValue(stream, *operation.flag, operation.value);
      case Operation::Kind::kWait:
        return driver_.WaitValue(stream, *operation.flag, operation.value);
      default:
        return driver_.Copy(stream, operation.to, operation.from, operation.bytes);
    }
  }

  const std::vector<Message>& messages_;
  Stream stream_;
  Driver& driver_;
  bool receives_;
  const Surroundings& surroundings_;
  std::vector<Outcome::Way> ways_;
  Outcome& outcome_;
  std::map<const Port*, uint64_t> counts_;
  std::vector<Port*> ports_;
  std::vector<Part> parts_;
  std::vector<size_t> native_;
  std::vector<Asked> asked_;
  std::vector<Stream> captured_;  // by stream of the plan
  Plan plan_;
};

bool Receives(const std::vector<Batch>& batches) {
  return std::ranges::any_of(batches, [](const Batch& batch) {
    return std::ranges::any_of(batch.messages, [](const Message& each) {
      return each.port->end->role() == Role::kReceiver;
    });
  });
}

// What is received first: peers look for it before they decide what they send.
bool Decide(std::vector<BatchWork>& works) {
  struct Turn {
    Role role;
    size_t turn;
    BatchWork* work;
    size_t index;
  };
  std::vector<Turn> turns;
  for (BatchWork& work : works) {
    for (size_t i = 0; i < work.messages().size(); ++i) {
      const Message& message = work.messages()[i];
      turns.push_back({message.port->end->role(), message.turn, &work, i});
    }
  }
  std::ranges::stable_sort(turns, [](const Turn& a, const Turn& b) {
    if (a.role != b.role) return a.role == Role::kReceiver;
    return a.turn < b.turn;
  });
  return std::ranges::all_of(turns, [](const Turn& each) { return each.work->Tell(each.index); }) &&
         std::ranges::all_of(works, [](BatchWork& work) { return work.TakeAnswers(); });
}

using Works = std::vector<BatchWork>;

bool EnqueueAfter(Works& works) {
  return std::ranges::all_of(works, [](BatchWork& work) { return work.EnqueueAfter(); });
}

bool Enqueue(const std::shared_ptr<Works>& works, const Surroundings& surroundings,
             std::function<bool()>* rest) {
  std::vector<std::vector<size_t>> native;
  bool any = surroundings.others;
  for (BatchWork& work : *works) {
    native.push_back(work.Native());
    any = any || !native.back().empty();
  }
  if (!std::ranges::all_of(*works, [&](BatchWork& work) { return work.EnqueueBefore(any); })) {
    return false;
  }
  const Surroundings::Native did = surroundings.native(native);
  if (did == Surroundings::Native::kInProgress) *rest = [works] { return EnqueueAfter(*works); };
  return did == Surroundings::Native::kDone ? EnqueueAfter(*works)
                                            : did == Surroundings::Native::kInProgress;
}

}  // namespace

Outcome RunGroup(const std::vector<Batch>& batches, const Surroundings& surroundings) {
  Outcome outcome;
  const bool receives = Receives(batches);
  const auto works = std::make_shared<Works>();
  works->reserve(batches.size());
  for (const Batch& each : batches) works->emplace_back(each, receives, surroundings, &outcome);
  const bool well = Decide(*works) && Enqueue(works, surroundings, &outcome.rest);
  if (!well && outcome.error.empty()) outcome.error = "CUDA or NCCL refused an operation";
  for (BatchWork& work : *works) {
    // Peers that were told of messages of this group would wait for them.
    if (!well) work.Break();
    outcome.ways.push_back(work.Ways());
  }
  return outcome;
}

}  // namespace nccltune::sendrecv
