// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "sendrecv/counts.h"
#include "sendrecv/ranges.h"
#include "sendrecv/say.h"
#include "sendrecv/watch.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

// How long a group looks for receivers before it decides without them: in any case, and at most.
constexpr auto kMoment = std::chrono::microseconds(50);
constexpr auto kMostMoment = std::chrono::milliseconds(5);
// How long for peers that capture the same: once for a lane at most, if they do not.
constexpr auto kCapture = std::chrono::seconds(1);
// Of a copy engine between two GPUs of the fast kind. A slower one takes longer.
constexpr uint64_t kBytesPerMicrosecond = 390'000;

// "2 sends, 2 receives, 134217728 bytes".
std::string WordsOf(const CallGroup& group) {
  size_t sends = 0;
  uint64_t bytes = 0;
  for (const Call& call : group.calls) {
    if (call.role == Role::kSender) ++sends;
    bytes += call.bytes();
  }
  const size_t receives = group.calls.size() - sends;
  const auto several = [](size_t count, std::string_view what) {
    return std::to_string(count) + std::string(what) + (count == 1 ? ", " : "s, ");
  };
  std::string words = sends == 0 ? "" : several(sends, " send");
  if (receives != 0) words += several(receives, " receive");
  return words + std::to_string(bytes) + " bytes";
}

Way WayOf(Reach reach) {
  switch (reach) {
    case Reach::kReached:
      return Way::kPushed;
    case Reach::kNotYet:
      return Way::kNotYet;
    case Reach::kNever:
      return Way::kRefused;
    case Reach::kUnshared:
      return Way::kUnshared;
    case Reach::kNoRoom:
      return Way::kNoRoom;
    case Reach::kNoMemory:
      break;
  }
  return Way::kNoMemory;
}

nccl::Result EndGroup(const CallGroup& group, const Native& native, nccl::Result result) {
  if (!group.grouped) return result;
  const nccl::Result ended = native.GroupEnd();
  return result == abi::kSuccess || result == abi::kInProgress ? ended : result;
}

class Run {
 public:
  Run(const CallGroup& group, const Native& native) : group_(group), native_(native) {}

  nccl::Result Go() {
    for (const Call& call : group_.calls) Add(&communicators_, call.communicator.get());
    // Whoever has several at once takes them in one order.
    std::ranges::sort(communicators_, std::less<>());
    const auto locks = Lock();
    Prepare();
    for (Communicator* each : communicators_) {
      const Communicator::Trouble trouble = each->Failure();
      if (!trouble.why.empty()) return Fail(trouble.why, trouble.result);
    }
    const std::string trouble = Enqueue();
    // Until then NCCL is called.
    if (trouble.empty() && rest_) return abi::kInProgress;
    return End(trouble);
  }

  // NCCL has done its part.
  nccl::Result Finish() {
    const auto locks = Lock();
    result_ = abi::kSuccess;
    return End(rest_() && Check() && Tie() ? "" : kRefused);
  }

  const std::vector<Communicator*>& communicators() const { return communicators_; }

 private:
  static constexpr const char* kRefused = "CUDA refused an operation";

  std::vector<std::unique_lock<InlineMutex>> Lock() const {
    std::vector<std::unique_lock<InlineMutex>> locks;
    locks.reserve(communicators_.size());
    for (Communicator* each : communicators_) locks.emplace_back(each->mutex());
    return locks;
  }

  nccl::Result End(const std::string& trouble) {
    for (size_t i = 0; i < batches_.size(); ++i) {
      // Also what was begun and not ended.
      owners_[i]->underway().Enqueued({.stream = batches_[i].stream,
                                       .ours = ours_.empty() || ours_[i],
                                       .native = native_peers_[i]});
    }
    // Nothing, or what NCCL says.
    return trouble.empty() ? result_ : Fail(trouble, ResultOf());
  }

  template <typename T>
  static size_t Add(std::vector<T>* all, T one) {
    const auto found = std::ranges::find(*all, one);
    const auto index = static_cast<size_t>(found - all->begin());
    if (found == all->end()) all->push_back(one);
    return index;
  }

  static Port* PortOf(const Call& call) {
    Communicator& communicator = *call.communicator;
    // Lanes begin with the first message that needs one, on both sides.
    return communicator.FindPort(call.peer, call.role,
                                 call.bytes() >= communicator.FloorOf(call.peer));
  }

  void Prepare() {
    for (Communicator* each : communicators_) each->Tidy();
    std::vector<std::pair<Communicator*, int>> looked;
    for (size_t turn = 0; turn < group_.calls.size(); ++turn) {
      const Call& call = group_.calls[turn];
      Communicator& communicator = *call.communicator;
      Port* const port = PortOf(call);
      const size_t batch = BatchOf(call);
      if (port == nullptr) {
        without_.push_back(turn);
        const bool small = call.bytes() < communicator.options().from;
        TheCounts().Add(small ? Way::kSmall : Way::kElsewhere, call.bytes());
        continue;
      }
      const auto peer = std::pair(&communicator, call.peer);
      if (Add(&looked, peer) + 1 == looked.size()) {
        communicator.LookAt(call.peer, [this] { return IsQuiet(); });
      }
      batches_[batch].messages.push_back(MessageOf(call, port, turn, batch));
    }
    others_.clear();
  }

  // Nothing that this process's communicators have begun is under way, nor is begun while peers are
  // looked at.
  bool IsQuiet() {
    std::vector<Stream> streams;
    for (const Call& call : group_.calls) Add<Stream>(&streams, call.stream);
    for (const std::shared_ptr<Communicator>& each : Watcher::Get().All()) {
      const bool held = std::ranges::find(communicators_, each.get()) != communicators_.end();
      if (held) continue;
      const bool known = std::ranges::any_of(
          others_, [&](const auto& other) { return other.communicator == each; });
      if (known) continue;
      std::unique_lock lock(each->mutex(), std::try_to_lock);
      if (!lock.owns_lock()) return false;
      others_.push_back({.communicator = each, .lock = std::move(lock)});
    }
    return std::ranges::all_of(communicators_,
                               [&](Communicator* each) { return each->IsQuiet(streams); }) &&
           std::ranges::all_of(
               others_, [&](const Other& each) { return each.communicator->IsQuiet(streams); });
  }

  size_t BatchOf(const Call& call) {
    for (size_t i = 0; i < batches_.size(); ++i) {
      if (owners_[i] == call.communicator.get() && batches_[i].stream == call.stream) return i;
    }
    owners_.push_back(call.communicator.get());
    ways_.emplace_back();
    native_peers_.emplace_back();
    captured_.push_back(call.communicator->driver().Capturing(call.stream));
    batches_.push_back(
        {.messages = {}, .stream = call.stream, .driver = &call.communicator->driver()});
    return batches_.size() - 1;
  }

  Message MessageOf(const Call& call, Port* port, size_t turn, size_t batch) {
    Communicator& communicator = *call.communicator;
    Message message = {.port = port,
                       .turn = turn,
                       .address = reinterpret_cast<DeviceAddress>(call.buffer),
                       .bytes = call.bytes()};
    message.small = message.bytes < communicator.FloorOf(call.peer);
    message.captured = captured_[batch];
    Way way = Way::kPushed;
    if (message.small || message.bytes < communicator.options().from) {
      way = Way::kSmall;
    } else if (message.captured && !communicator.options().policy.graphs) {
      way = Way::kCaptured;
    } else {
      const Found found = communicator.options().policy.fifo
                              ? communicator.FindFifo(call.peer, call.role)
                              : communicator.FindShare(call.peer, message.address, message.bytes);
      message.allocation = found.number;
      message.offset = found.offset;
      way = WayOf(found.reach);
      if (way == Way::kPushed && port->end->IsFresh()) way = Way::kFirst;
      if (way == Way::kPushed && communicator.options().dry_run) way = Way::kDry;
    }
    message.possible = way == Way::kPushed;
    if (message.captured && way != Way::kSmall) {
      // The peer can map what it has not yet when it captures the same.
      message.possible = message.possible || way == Way::kNotYet;
      way = Way::kCaptured;
    }
    ways_[batch].push_back(way);
    return message;
  }

  // Empty: well.
  std::string Enqueue() {
    std::optional<Clock::time_point> began;
    std::optional<Clock::time_point> asked;
    const Surroundings surroundings = {
        .policy = communicators_.front()->options().policy,
        .moment =
            [&](uint64_t bytes) {
              const auto now = Clock::now();
              if (!began) began = now;
              const auto waited = now - *began;
              if (waited < kMoment) return true;
              std::this_thread::yield();
              const auto more = std::chrono::microseconds(bytes / kBytesPerMicrosecond);
              return waited < std::min<Clock::duration>(kMoment + more, kMostMoment);
            },
        .pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(20)); },
        .capture =
            [&] {
              const auto now = Clock::now();
              if (!asked) asked = now;
              std::this_thread::sleep_for(std::chrono::microseconds(20));
              return now - *asked < kCapture;
            },
        .others = group_.others || !without_.empty(),
        .native =
            [&](const std::vector<std::vector<size_t>>& messages) {
              using Native = Surroundings::Native;
              result_ = CallNative(messages);
              if (result_ == abi::kInProgress) return Native::kInProgress;
              return result_ == abi::kSuccess ? Native::kDone : Native::kRefused;
            },
    };
    if (!Tie() || !Sum()) return kRefused;
    Outcome outcome = RunGroup(batches_, surroundings);
    Count(outcome);
    if (outcome.error.empty()) {
      for (const std::vector<Outcome::Way>& ways : outcome.ways) {
        ours_.push_back(!checked_.empty() || std::ranges::any_of(ways, [](Outcome::Way way) {
          return way.path != Path::kNative;
        }));
      }
    }
    cause_ = outcome.cause;
    rest_ = std::move(outcome.rest);
    if (rest_) return "";
    if (!outcome.error.empty() && result_ == abi::kSuccess) return outcome.error;
    if (result_ != abi::kSuccess) return "";
    return Check() && Tie() ? "" : kRefused;
  }

  // What is sent, before anything of the group is enqueued that a peer waits for.
  bool Sum() {
    return std::ranges::all_of(CheckedMessages(), [](const CheckedMessage& each) {
      const Message& message = *each.message;
      const bool sends = message.port->end->role() == Role::kSender;
      return !sends || each.checked.verifier->Sum(each.stream, message.address, message.bytes,
                                                  each.checked.sums, each.checked.number);
    });
  }

  bool Check() {
    return std::ranges::all_of(checked_, [](const CheckedMessage& each) {
      const Message& message = *each.message;
      const bool sends = message.port->end->role() == Role::kSender;
      return sends || each.checked.verifier->Check(each.stream, message.address, message.bytes,
                                                   each.checked.sums, each.checked.number,
                                                   message.port->name);
    });
  }

  struct CheckedMessage {
    const Message* message = nullptr;
    Stream stream = nullptr;
    Communicator::Checked checked;
  };

  const std::vector<CheckedMessage>& CheckedMessages() {
    if (!communicators_.front()->options().verify) return checked_;
    // In the order of calls, in which the peer counts.
    for (size_t turn = 0; turn < group_.calls.size(); ++turn) {
      for (size_t i = 0; i < batches_.size(); ++i) {
        const auto found = std::ranges::find(batches_[i].messages, turn, &Message::turn);
        if (found == batches_[i].messages.end() || found->small || found->captured) continue;
        const Call& call = group_.calls[turn];
        const auto checked = owners_[i]->NextChecked(call.peer, call.role);
        if (checked.verifier != nullptr) {
          checked_.push_back({&*found, batches_[i].stream, checked});
        }
      }
    }
    return checked_;
  }

  nccl::Result ResultOf() const {
    switch (cause_) {
      case Outcome::Cause::kUsage:
        return abi::kInvalidUsage;
      case Outcome::Cause::kPeer:
        return abi::kRemoteError;
      case Outcome::Cause::kRefused:
        break;
    }
    return abi::kUnhandledCudaError;
  }

  // NCCL makes all streams of a communicator in a group wait for each other.
  bool Tie() {
    return std::ranges::all_of(communicators_, [&](Communicator* communicator) {
      std::vector<Stream> streams;
      for (size_t i = 0; i < batches_.size(); ++i) {
        const bool ours = owners_[i] == communicator && !batches_[i].messages.empty();
        if (ours) streams.push_back(batches_[i].stream);
      }
      return streams.size() < 2 || communicator->Tie(streams);
    });
  }

  nccl::Result CallNative(const std::vector<std::vector<size_t>>& messages) {
    called_ = true;
    std::vector<size_t> turns = without_;
    for (size_t batch = 0; batch < messages.size(); ++batch) {
      for (const size_t i : messages[batch]) {
        turns.push_back(batches_[batch].messages[i].turn);
      }
    }
    std::ranges::sort(turns);
    for (const size_t turn : turns) {
      const Call& call = group_.calls[turn];
      call.communicator->underway().BeginNative({&call.peer, 1});
      Add(&native_peers_[BatchOf(call)], call.peer);
    }
    return CallNative(turns);
  }

  nccl::Result CallNative(const std::vector<size_t>& turns) {
    nccl::Result result = abi::kSuccess;
    for (const size_t turn : turns) {
      const nccl::Result called = CallOne(group_.calls[turn], native_);
      const bool fails = result != abi::kSuccess && result != abi::kInProgress;
      if (called != abi::kSuccess && !fails) result = called;
    }
    return EndGroup(group_, native_, result);
  }

  void Count(const Outcome& outcome) {
    for (size_t batch = 0; batch < outcome.ways.size(); ++batch) {
      for (size_t i = 0; i < outcome.ways[batch].size(); ++i) {
        const Message& message = batches_[batch].messages[i];
        const Way way = WayTaken(outcome.ways[batch][i], ways_[batch][i], message);
        TheCounts().Add(way, message.bytes);
        if (Range::Seen()) Mark(message, way);
      }
    }
  }

  static void Mark(const Message& message, Way way) {
    std::string words = message.port->name;
    words += ": " + std::to_string(message.bytes) + " bytes, ";
    words += WordsOf(way);
    Range::Mark(words);
  }

  static Way WayTaken(const Outcome::Way& taken, Way wanted, const Message& message) {
    switch (taken.path) {
      case Path::kPushed:
        return Way::kPushed;
      case Path::kPulled:
        return Way::kPulled;
      case Path::kStaged:
        return Way::kStaged;
      case Path::kFifo:
        return Way::kFifo;
      case Path::kNative:
        break;
    }
    if (message.small) return Way::kSmall;
    if (message.port->end->closed()) return Way::kCaptured;
    if (wanted != Way::kPushed) return wanted;
    return taken.first ? Way::kEager : Way::kPeer;
  }

  nccl::Result Fail(const std::string& trouble, nccl::Result result) {
    Warn(trouble);
    for (Communicator* each : communicators_) each->Break(trouble);
    // Its group ends whatever else does.
    if (group_.grouped && !called_) native_.GroupEnd();
    return result;
  }

  // Of the process, not of the group, and kept from being called.
  struct Other {
    std::shared_ptr<Communicator> communicator;
    std::unique_lock<InlineMutex> lock;
  };

  const CallGroup& group_;
  const Native& native_;
  std::vector<Other> others_;
  std::vector<Communicator*> communicators_;
  std::vector<Batch> batches_;
  std::vector<Communicator*> owners_;           // by batch
  std::vector<bool> captured_;                  // by batch
  std::vector<bool> ours_;                      // by batch, if all went well
  std::vector<std::vector<int>> native_peers_;  // by batch: of messages that NCCL carries
  std::vector<std::vector<Way>> ways_;          // by batch and message: what would be, or why not
  std::vector<size_t> without_;                 // turns of calls that no lane leads to
  std::vector<CheckedMessage> checked_;
  nccl::Result result_ = abi::kSuccess;
  std::function<bool()> rest_;  // behind NCCL's part, which is in progress
  bool called_ = false;
  Outcome::Cause cause_ = Outcome::Cause::kRefused;
};

// A run that goes on behind its call.
class LongRun final : public Rest {
 public:
  LongRun(CallGroup group, const Native& native) : group_(std::move(group)), run_(group_, native) {}

  nccl::Result Go() { return run_.Go(); }

  std::vector<nccl::Comm> Comms() const override {
    std::vector<nccl::Comm> comms;
    for (const Call& call : group_.calls) {
      if (std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
    }
    return comms;
  }
  nccl::Result Finish() override { return run_.Finish(); }
  void GiveUp(const std::string& why) override {
    for (Communicator* each : run_.communicators()) each->Break(why);
  }

 private:
  const CallGroup group_;
  Run run_;
};

}  // namespace

nccl::Result CallOne(const Call& call, const Native& native) {
  return call.role == Role::kSender
             ? native.Send(call.buffer, call.count, call.type, call.peer, call.comm, call.stream)
             : native.Recv(call.buffer, call.count, call.type, call.peer, call.comm, call.stream);
}

nccl::Result RunCalls(const CallGroup& group, const Native& native, std::shared_ptr<Rest>* rest) {
  std::optional<Range> range;
  if (Range::Seen()) range.emplace(WordsOf(group));
  const bool blocks = std::ranges::all_of(
      group.calls, [](const Call& call) { return call.communicator->blocks(); });
  if (blocks) return Run(group, native).Go();
  auto run = std::make_shared<LongRun>(group, native);
  const nccl::Result result = run->Go();
  if (result == abi::kInProgress) *rest = std::move(run);
  return result;
}

}  // namespace nccltune::sendrecv
