// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group.h"

#include <algorithm>
#include <map>
#include <string>

namespace nccltune::sendrecv {
namespace {

// A group as it is worked through; the steps in their order.
class Work {
 public:
  Work(const std::vector<Message>& messages, Stream stream, const Surroundings& surroundings)
      : messages_(messages), stream_(stream), surroundings_(surroundings) {
    outcome_.paths.resize(messages.size(), Path::kNative);
    receives_ = std::ranges::any_of(
        messages, [](const Message& each) { return each.port->end->role() == Role::kReceiver; });
  }

  Outcome Run() {
    // What is received first: peers look for it before they decide what they send.
    if (Fits() && TellAll(Role::kReceiver) && TellAll(Role::kSender)) Enqueue();
    // Peers that were told of messages of this group would wait for them.
    if (!outcome_.error.empty()) {
      for (const Message& each : messages_) each.port->end->Break();
    }
    return std::move(outcome_);
  }

 private:
  bool Fail(const Message& message, const std::string& what) {
    outcome_.error = message.port->name + ": " + what;
    return false;
  }

  // A slot is free when what had it is over, which nothing of this group is before it is enqueued.
  bool Fits() {
    std::map<const Port*, uint64_t> counts;
    for (const Message& each : messages_) {
      if (++counts[each.port] > LaneMemory::kSlots / 2) {
        return Fail(
            each, "more than " + std::to_string(LaneMemory::kSlots / 2) + " messages in one group");
      }
    }
    return true;
  }

  bool TellAll(Role role) {
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].port->end->role() == role && !Tell(i)) return false;
    }
    return true;
  }

  bool Tell(size_t index) {
    const Message& message = messages_[index];
    LaneEnd& end = *message.port->end;
    if (message.small) {
      end.Pass();
      native_.push_back(index);
      return true;
    }
    // As CUDA lets a caller wait whose queue is full.
    while (!end.HasRoom()) surroundings_.pause();
    if (end.broken()) return Fail(message, "the communicator has failed");
    if (end.role() == Role::kSender) {
      while (!end.Told() && surroundings_.moment()) {
      }
    }
    const bool ready = end.Ready();
    const Circumstances circumstances = {
        .bytes = message.bytes, .possible = message.possible, .group_receives = receives_};
    const Arrived arrived =
        end.Arrive(message.bytes, message.allocation, message.offset,
                   FirstDecides(end.role(), circumstances, surroundings_.policy));
    if (!arrived.first && !Agrees(message, arrived)) return false;
    return Follow(index, arrived, circumstances, ready);
  }

  bool Agrees(const Message& message, const Arrived& arrived) {
    const bool sends = message.port->end->role() == Role::kSender;
    const Half& sent = sends ? arrived.mine : arrived.theirs;
    const Half& received = sends ? arrived.theirs : arrived.mine;
    const std::string number = "message " + std::to_string(arrived.number) + " ";
    if (sent.bytes != received.bytes) {
      return Fail(message, number + "has " + std::to_string(sent.bytes) +
                               " bytes where it is sent and " + std::to_string(received.bytes) +
                               " where it is received");
    }
    if (sent.before != received.before) {
      return Fail(message, number + "comes after " + std::to_string(sent.before) +
                               " others where it is sent and after " +
                               std::to_string(received.before) +
                               " where it is received: a smaller one differed in size");
    }
    return true;
  }

  bool Follow(size_t index, const Arrived& arrived, const Circumstances& circumstances,
              bool ready) {
    if (arrived.verdict == Verdict::kNative) {
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
                 .there = ready};
    const bool pushed = arrived.verdict == Verdict::kPush;
    outcome_.paths[index] = pushed ? Path::kPushed : Path::kPulled;
    if (!arrived.first && !CopyHere(message, arrived, pushed, &part)) return false;
    if (!arrived.first && pushed &&
        HowToSend(ready, circumstances, surroundings_.policy) == Sending::kStaged &&
        message.port->staging != nullptr) {
      auto room = message.port->staging->Take(message.bytes, slot.done, part.value);
      if (room) {
        part.kind = Part::Kind::kStaged;
        part.staging = room->at;
        part.before = std::move(room->before);
        outcome_.paths[index] = Path::kStaged;
      }
    }
    parts_.push_back(std::move(part));
    return true;
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

  size_t Lane(const Port* port) {
    const auto found = std::ranges::find(ports_, port);
    if (found == ports_.end()) ports_.push_back(port);
    return static_cast<size_t>(std::ranges::find(ports_, port) - ports_.begin());
  }

  void Enqueue() {
    const Plan plan = MakePlan(parts_, !native_.empty());
    const bool well = Enqueue(plan, plan.before) &&
                      (native_.empty() || surroundings_.native(native_)) &&
                      Enqueue(plan, plan.after);
    if (!well && outcome_.error.empty()) outcome_.error = "CUDA or NCCL refused an operation";
  }

  bool Enqueue(const Plan& plan, const std::vector<Operation>& operations) {
    return std::ranges::all_of(operations,
                               [&](const Operation& each) { return Enqueue(plan, each); });
  }

  Stream StreamOf(const Plan& plan, size_t number) const {
    if (number == 0) return stream_;
    const Port& port = *ports_[plan.streams[number].lane];
    return plan.streams[number].staging ? port.staging_stream : port.stream;
  }

  bool Enqueue(const Plan& plan, const Operation& operation) {
    Driver& driver = *surroundings_.driver;
    Stream stream = StreamOf(plan, operation.stream);
    // Events are of streams that are not the application's.
    const PlanStream& which = plan.streams[operation.stream];
    const Port& port = *ports_[which.lane];
    Event joined = which.staging ? port.staging_joined : port.joined;
    switch (operation.kind) {
      case Operation::Kind::kWrite:
        return driver.WriteValue(stream, *operation.flag, operation.value);
      case Operation::Kind::kWait:
        return driver.WaitValue(stream, *operation.flag, operation.value);
      case Operation::Kind::kCopy:
        return driver.Copy(stream, operation.to, operation.from, operation.bytes);
      case Operation::Kind::kFork:
        return driver.Record(port.forked, StreamOf(plan, operation.other)) &&
               driver.WaitEvent(stream, port.forked);
      case Operation::Kind::kMark:
        return driver.Record(joined, stream);
      case Operation::Kind::kJoin:
        return driver.WaitEvent(stream_, joined);
    }
    return false;
  }

  const std::vector<Message>& messages_;
  Stream stream_;
  const Surroundings& surroundings_;
  bool receives_ = false;
  std::vector<const Port*> ports_;
  std::vector<Part> parts_;
  std::vector<size_t> native_;
  Outcome outcome_;
};

}  // namespace

Outcome RunGroup(const std::vector<Message>& messages, Stream stream,
                 const Surroundings& surroundings) {
  return Work(messages, stream, surroundings).Run();
}

}  // namespace nccltune::sendrecv
