// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group/group.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace nccltune::sendrecv {
namespace {

// Most incomplete messages of a lane that are copied with Policy::kernel_waits.
constexpr uint64_t kMostKernelPulls = 32;

// Carries out one batch. Call the public functions in this order: PostMessage for each message,
// ResolveCaptures, Native, EnqueueBefore, EnqueueAfter.
class BatchRun {
 public:
  BatchRun(const Batch& batch, bool receives, const GroupContext& context, GroupOutcome* outcome)
      : messages_(batch.messages),
        stream_(batch.stream),
        driver_(*batch.driver),
        helpers_(batch.helpers),
        receives_(receives),
        context_(context),
        outcomes_(batch.messages.size()),
        group_outcome_(*outcome) {}

  // `alone` is true if the group has no other batch.
  bool EnqueueBefore(bool native, bool alone) {
    if (context_.policy.kernel_waits) {
      kernels_.emplace(transfers_, native || !alone, context_.policy.wait_limits);
      return kernels_->EnqueueBefore(driver_, stream_, *helpers_);
    }
    plan_ = MakePlan(transfers_, native);
    return Enqueue(plan_.before_native);
  }
  bool EnqueueAfter() {
    return kernels_ ? kernels_->EnqueueAfter(driver_, stream_) : Enqueue(plan_.after_native);
  }

  // Returns the messages that NCCL carries, in the order of the calls. The peer has the same order.
  std::vector<size_t> Native() {
    std::ranges::sort(native_);
    return native_;
  }

  void Break() {
    for (const GroupMessage& each : messages_) each.port->end->Break();
  }

  std::vector<MessageOutcome> Outcomes() { return std::move(outcomes_); }

  const std::vector<GroupMessage>& messages() const { return messages_; }

  bool PostMessage(size_t index) {
    const GroupMessage& message = messages_[index];
    LaneEnd& end = *message.port->end;
    if (MayCapture(message)) {
      // Captured messages that were posted earlier in this group keep their slots until they are
      // decided. If no slot is free, wait for those decisions.
      if (HasPendingCapture(message.port) && !end.HasFreeSlot() && !ResolveCaptures()) return false;
      if (MayCapture(message) && WaitForGate(end) && end.HasFreeSlot()) return Capture(index);
    }
    // Wait for the decisions about captured messages of this lane first. They may close the lane,
    // which affects all later messages.
    if (HasPendingCapture(message.port) && !ResolveCaptures()) return false;
    if (message.small) return CountAsNative(index);
    if (end.broken() && !end.closed()) return LeaveBrokenLane(index);
    const bool gives_way = end.role() == Role::kSender && end.gave_way();
    if ((message.captured || gives_way) && !Close(message)) return false;
    if (end.closed()) return CountAsNative(index, NativeReason::kClosed);
    if (!end.PassGate()) return SetNative(index);
    MessagePosting posting;
    posting.conditions = {.bytes = message.bytes,
                          .can_copy = message.can_copy && HasRoom(end),
                          .may_push = message.port->may_push,
                          .group_receives = receives_,
                          .staging = false};
    posting.exported = {.allocation = message.allocation, .offset = message.offset};
    const MessageDecision decision = context_.policy.kernel_waits ? WaitForSender(message, posting)
                                     : end.role() == Role::kSender
                                         ? WaitForReceiver(message, &posting)
                                         : DecideAsFirst(message, posting.conditions);
    posting.receiver_is_ready = end.IsReceiverReady();
    const PostedMessage posted =
        end.Post(message.bytes, posting.exported.allocation, posting.exported.offset, decision);
    if (posted.full) return SetNative(index);
    // The lane was broken meanwhile, so its flags no longer state which messages are complete, and
    // a copy engine cannot carry this message.
    if (end.broken()) {
      return end.ended() ? SetNative(index, NativeReason::kEnded) : FailByPeer(message);
    }
    if (posted.invalid) return Fail(message, "the memory that both ranks share is damaged");
    outcomes_[index].first = posted.first;
    if (!posted.first && posted.decision != MessageDecision::kClosed &&
        !CheckMatch(message, posted)) {
      return false;
    }
    return AddTransfer(index, posted, std::move(posting));
  }

  // Waits for the peers to decide the captured messages that this side has posted first.
  bool ResolveCaptures() {
    return std::ranges::all_of(
        std::exchange(pending_captures_, {}), [&](const PendingCapture& capture) {
          const GroupMessage& message = messages_[capture.index];
          LaneEnd& end = *message.port->end;
          while (!end.IsDecided(capture.number) && !end.broken() && context_.wait_for_capture()) {
          }
          if (end.broken() && !end.ended()) return FailByPeer(message);
          LaneMemory::GraphFlags* const flags = end.ResolveCapture(capture.number);
          if (flags == nullptr) return CountAsNative(capture.index, NativeReason::kClosed);
          AddGraphTransfer(capture.index, flags, MessageTransfer::Kind::kPeerCopies);
          return true;
        });
  }

 private:
  struct PendingCapture {
    size_t index = 0;
    uint64_t number = 0;
  };

  bool HasPendingCapture(const Port* port) const {
    return std::ranges::any_of(pending_captures_, [&](const PendingCapture& capture) {
      return messages_[capture.index].port == port;
    });
  }

  // Counts a message in its lane and leaves the message to NCCL.
  bool CountAsNative(size_t index, NativeReason reason = NativeReason::kDecided) {
    messages_[index].port->end->CountNative();
    return SetNative(index, reason);
  }

  // Handles a message of a broken lane. If the peer's application has ended the communicator, NCCL
  // carries the message, as it would without this library. Otherwise the group fails.
  bool LeaveBrokenLane(size_t index) {
    const GroupMessage& message = messages_[index];
    return message.port->end->ended() ? CountAsNative(index, NativeReason::kEnded)
                                      : FailByPeer(message);
  }

  // Leaves a message to NCCL that the lane has already counted.
  bool SetNative(size_t index) {
    const LaneEnd& end = *messages_[index].port->end;
    if (end.closed()) return SetNative(index, NativeReason::kClosed);
    return SetNative(index, end.IsFresh() ? NativeReason::kFresh : NativeReason::kRingFull);
  }

  bool SetNative(size_t index, NativeReason reason) {
    outcomes_[index].reason = reason;
    native_.push_back(index);
    return true;
  }

  // Returns whether a copy engine may carry a captured message. Its group must be allowed to wait
  // for the peer, and the peer must be in another process: a thread that captures both sides cannot
  // wait for itself.
  bool MayCapture(const GroupMessage& message) const {
    const MessageConditions conditions = {.bytes = message.bytes,
                                          .can_copy = message.can_copy,
                                          .group_receives = receives_,
                                          .staging = false};
    return message.captured && message.can_copy && !message.small && context_.policy.graphs &&
           MayWait(conditions, context_.policy) && !message.port->same_process &&
           !message.port->end->closed();
  }

  // Waits until the lane's gate is open. A peer that is behind opens the gate when it reaches the
  // same message. Returns false if the gate stays shut.
  bool WaitForGate(LaneEnd& end) const {
    while (!end.OpenGate()) {
      if (!end.WaitsForPeer() || end.broken() || !context_.wait_for_capture()) return false;
    }
    return true;
  }

  // Posts a captured message. The second side does the copy, because only the second side knows
  // both addresses.
  bool Capture(size_t index) {
    const GroupMessage& message = messages_[index];
    LaneEnd& end = *message.port->end;
    if (end.broken()) return LeaveBrokenLane(index);
    const CapturedMessage captured = end.Capture(message.bytes, message.allocation, message.offset);
    if (captured.state == CapturedMessage::State::kFirst) {
      pending_captures_.push_back({.index = index, .number = captured.number});
      return true;
    }
    if (captured.state == CapturedMessage::State::kDirect && !Close(message)) return false;
    if (captured.state != CapturedMessage::State::kSecond) {
      return CountAsNative(index, NativeReason::kClosed);
    }
    const PostedMessage posted = {.number = captured.number,
                                  .first = false,
                                  .decision = MessageDecision::kCapture,
                                  .mine = captured.mine,
                                  .theirs = captured.theirs};
    if (!CheckMatch(message, posted)) return false;
    message.port->map_new();
    const DeviceAddress theirs =
        message.port->resolve(captured.theirs.allocation, captured.theirs.offset, message.bytes);
    const bool sends = end.role() == Role::kSender;
    const bool may_copy = theirs != 0 && (!sends || message.port->may_push);
    LaneMemory::GraphFlags* const flags = end.AcceptCapture(may_copy);
    if (flags == nullptr) return CountAsNative(index, NativeReason::kClosed);
    MessageTransfer& transfer = AddGraphTransfer(index, flags, MessageTransfer::Kind::kCopy);
    transfer.to = sends ? theirs : message.address;
    transfer.from = sends ? message.address : theirs;
    return true;
  }

  MessageTransfer& AddGraphTransfer(size_t index, LaneMemory::GraphFlags* flags,
                                    MessageTransfer::Kind kind) {
    const GroupMessage& message = messages_[index];
    const bool sends = message.port->end->role() == Role::kSender;
    outcomes_[index].path =
        sends == (kind == MessageTransfer::Kind::kCopy) ? Path::kPushed : Path::kPulled;
    MessageTransfer transfer;
    transfer.kind = kind;
    transfer.lane = Lane(message.port);
    transfer.ready = &flags->ready;
    transfer.done = &flags->done;
    transfer.value = 1;
    transfer.bytes = message.bytes;
    transfer.in_graph = true;
    transfers_.push_back(std::move(transfer));
    return transfers_.back();
  }

  bool Fail(const GroupMessage& message, const std::string& what) {
    group_outcome_.error = message.port->name + ": " + what;
    return false;
  }

  bool FailByPeer(const GroupMessage& message) {
    group_outcome_.cause = GroupOutcome::Cause::kPeer;
    return Fail(message, "the communicator has failed");
  }

  // This side's data about a message that it posts.
  struct MessagePosting {
    MessageConditions conditions;
    bool receiver_is_ready = false;  // the receiver's stream had already reached the receive
    ExportedAddress exported;        // the memory that the peer may copy from or to
    // The region of the staging memory that is posted as `exported`.
    std::optional<Staging::Region> region;
  };

  MessageDecision DecideAsFirst(const GroupMessage& message,
                                const MessageConditions& conditions) const {
    return DecideFirst(message.port->end->role(), conditions, context_.policy);
  }

  // Returns the decision that the sender posts. A GPU has one copy engine for all its peers. A pull
  // occupies the receiver's engine while the sender's engine is idle, and the receiver may have to
  // push as well. So the sender first waits for its receiver, at most as long as a pull would take.
  MessageDecision WaitForReceiver(const GroupMessage& message, MessagePosting* posting) {
    MessageConditions& conditions = posting->conditions;
    const LaneEnd& end = *message.port->end;
    std::optional<ExportedAddress> staging;
    if (DecideAsFirst(message, conditions) == MessageDecision::kNative && conditions.can_copy) {
      staging = message.port->staging_address();
      conditions.staging = staging.has_value();
    }
    const MessageDecision decision = DecideAsFirst(message, conditions);
    const bool pulled = decision == MessageDecision::kPull || decision == MessageDecision::kFetch;
    const uint64_t bytes = pulled && !message.port->same_process ? message.bytes : 0;
    // If no slot is free, NCCL carries the message, whatever the receiver does. So do not wait
    // then.
    while (end.HasFreeSlot() && !end.IsDecidedByPeer() && context_.wait_for_receiver(bytes)) {
    }
    if (!staging || decision != MessageDecision::kFetch || end.IsDecidedByPeer()) return decision;
    const Staging& memory = *message.port->staging();
    posting->region = memory.Find(message.bytes);
    if (!posting->region) return MessageDecision::kNative;
    posting->exported = {.allocation = staging->allocation,
                         .offset = staging->offset + (posting->region->at - memory.base())};
    return decision;
  }

  // Returns the decision that this side posts if waits are kernels. Only a message that its sender
  // has posted first is copied, so the receiver waits a little.
  MessageDecision WaitForSender(const GroupMessage& message, const MessagePosting& posting) {
    const LaneEnd& end = *message.port->end;
    const uint64_t bytes = message.port->same_process ? 0 : message.bytes;
    while (end.role() == Role::kReceiver && end.HasFreeSlot() && !end.IsDecidedByPeer() &&
           context_.wait_for_receiver(bytes)) {
    }
    return DecideAsFirst(message, posting.conditions);
  }

  // Returns whether the receiver has few enough copies in progress. Each takes a stream.
  bool HasRoom(const LaneEnd& end) const {
    return !context_.policy.kernel_waits || end.HasRoom(kMostKernelPulls);
  }

  bool Close(const GroupMessage& message) {
    LaneEnd& end = *message.port->end;
    while (!end.closed()) {
      if (!end.Close()) {
        group_outcome_.cause = GroupOutcome::Cause::kUsage;
        return Fail(message,
                    "captured in a graph here and called directly by the peer; unset "
                    "NCCLTUNE_SENDRECV for such programs");
      }
    }
    return true;
  }

  bool CheckMatch(const GroupMessage& message, const PostedMessage& posted) {
    const bool sends = message.port->end->role() == Role::kSender;
    const SlotHalf& sent = sends ? posted.mine : posted.theirs;
    const SlotHalf& received = sends ? posted.theirs : posted.mine;
    const std::string mismatch = DescribeMismatch(sent, received);
    if (mismatch.empty()) return true;
    group_outcome_.cause = GroupOutcome::Cause::kUsage;
    message.port->end->memory().mismatched_number.store(posted.number);
    return Fail(message, mismatch);
  }

  bool AddTransfer(size_t index, const PostedMessage& posted, MessagePosting posting) {
    if (posted.decision == MessageDecision::kClosed) return SetNative(index, NativeReason::kClosed);
    if (posted.decision == MessageDecision::kNative) {
      return SetNative(index,
                       IsEarly(index, posted) ? NativeReason::kEarly : NativeReason::kDecided);
    }
    const GroupMessage& message = messages_[index];
    MessageSlot& slot = message.port->end->SlotOf(posted.number);
    MessageTransfer transfer = {.kind = MessageTransfer::Kind::kPeerCopies,
                                .lane = Lane(message.port),
                                .ready = &slot.ready,
                                .done = &slot.done,
                                .value = FlagValue(posted.number),
                                .wait_for = {},
                                .bytes = message.bytes,
                                .piece = context_.policy.piece,
                                .peer_is_ready = posting.receiver_is_ready,
                                .channels = {}};
    if (posted.decision == MessageDecision::kBuffered) {
      return AddBuffered(message, index, std::move(transfer));
    }
    const bool pushed = posted.decision == MessageDecision::kPush;
    outcomes_[index].path = pushed ? Path::kPushed : Path::kPulled;
    if (!posted.first && !SetAddresses(message, posted, pushed, &transfer)) return false;
    if (context_.policy.kernel_waits) {
      AddKernelTransfer(message, &slot, std::move(transfer));
      return true;
    }
    const bool stages_for_peer = posted.first && posted.decision == MessageDecision::kFetch;
    const bool stages =
        !posted.first && pushed &&
        ChooseSendMethod(posting.receiver_is_ready && !IsBehindStaged(*message.port),
                         posting.conditions, context_.policy) == SendMethod::kStaged;
    Staging* const staging = stages_for_peer || stages ? message.port->staging() : nullptr;
    if (staging != nullptr && !posting.region) posting.region = staging->Find(message.bytes);
    if (staging != nullptr && posting.region) {
      // Take the region only now, when the message certainly uses it. For another message nothing
      // would ever free the region.
      staging->Take(*posting.region, slot.done, transfer.value);
      transfer.kind = stages_for_peer ? MessageTransfer::Kind::kStagedForPeer
                                      : MessageTransfer::Kind::kStagedCopy;
      if (stages) message.port->staged = {.done = &slot.done, .value = transfer.value};
      if (stages_for_peer) transfer.from = message.address;
      transfer.staging = posting.region->at;
      transfer.wait_for = std::move(posting.region->wait_for);
      outcomes_[index].path = Path::kStaged;
    }
    transfers_.push_back(std::move(transfer));
    return true;
  }

  bool IsEarly(size_t index, const PostedMessage& posted) const {
    const GroupMessage& message = messages_[index];
    const bool only_receivers = context_.policy.kernel_waits || !message.port->may_push;
    return only_receivers && posted.first && message.can_copy &&
           message.port->end->role() == Role::kReceiver;
  }

  void AddKernelTransfer(const GroupMessage& message, MessageSlot* slot, MessageTransfer transfer) {
    transfer.slot = slot;
    transfer.lane_memory = &message.port->end->memory();
    transfer.role = message.port->end->role();
    transfer.same_gpu = message.port->same_gpu;
    // Kernels of streams with another priority may start in another order than they are launched,
    // on which the copies rely.
    transfer.by_kernel =
        transfer.kind == MessageTransfer::Kind::kCopy && !driver_.HasDefaultPriority(stream_);
    transfers_.push_back(std::move(transfer));
  }

  // Returns whether the last staged message of the lane is still being copied to the peer. This is
  // possible although the next receive is ready, because the receives may be in different streams.
  static bool IsBehindStaged(const Port& port) {
    return port.staged && !Reached(port.staged->done->load(), port.staged->value);
  }

  bool SetAddresses(const GroupMessage& message, const PostedMessage& posted, bool pushed,
                    MessageTransfer* transfer) {
    transfer->kind = MessageTransfer::Kind::kCopy;
    const DeviceAddress theirs =
        message.port->resolve(posted.theirs.allocation, posted.theirs.offset, message.bytes);
    if (theirs == 0) return Fail(message, "the peer's memory cannot be reached any more");
    transfer->to = pushed ? theirs : message.address;
    transfer->from = pushed ? message.address : theirs;
    return true;
  }

  // Carries a message through the receiver's buffer (vccl policy).
  bool AddBuffered(const GroupMessage& message, size_t index, MessageTransfer transfer) {
    vccl::Channels* const channels = message.port->channels();
    if (channels == nullptr) {
      return Fail(message, "the receiver's buffer cannot be reached any more");
    }
    const bool sends = message.port->end->role() == Role::kSender;
    transfer.kind =
        sends ? MessageTransfer::Kind::kBufferedSend : MessageTransfer::Kind::kBufferedReceive;
    transfer.channels = channels->NextMessage(message.address, message.bytes);
    outcomes_[index].path = Path::kBuffered;
    transfers_.push_back(std::move(transfer));
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

  // Returns a stream of the plan, or null if CUDA refuses to create it.
  Stream StreamOf(size_t number) {
    if (number == 0) return stream_;
    const PlanStream& which = plan_.streams[number];
    Port& port = *ports_[which.lane];
    if (which.kind != PlanStream::kOfGraph) {
      Stream& stream = port.streams[which.kind];
      if (stream == nullptr) stream = driver_.NewStream();
      return stream;
    }
    // Create a new stream for each plan. A stream belongs to its capture until the capture ends,
    // and CUDA does not report the end.
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
    // Only stream 0 may be null: the application's stream may be the default stream.
    if (stream == nullptr && operation.stream != 0) return false;
    if (operation.kind == Operation::Kind::kWrite || operation.kind == Operation::Kind::kWait ||
        operation.kind == Operation::Kind::kCopy) {
      return EnqueueIn(stream, operation);
    }
    // Stream 0, the application's stream, uses the events of the first lane.
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

  const std::vector<GroupMessage>& messages_;
  Stream stream_;
  Driver& driver_;
  HelperStreams* helpers_;
  bool receives_;
  const GroupContext& context_;
  std::vector<MessageOutcome> outcomes_;
  GroupOutcome& group_outcome_;
  std::vector<Port*> ports_;
  std::vector<MessageTransfer> transfers_;
  std::vector<size_t> native_;
  std::vector<PendingCapture> pending_captures_;
  std::vector<Stream> captured_;  // by index of the plan's stream
  Plan plan_;
  std::optional<KernelRun> kernels_;  // with Policy::kernel_waits, instead of `plan_`
};

bool Receives(const std::vector<Batch>& batches) {
  return std::ranges::any_of(batches, [](const Batch& batch) {
    return std::ranges::any_of(batch.messages, [](const GroupMessage& each) {
      return each.port->end->role() == Role::kReceiver;
    });
  });
}

// Posts all messages. The side for which the peer waits before it decides comes first: receives, or
// sends if waits are kernels.
bool Decide(std::vector<BatchRun>& runs, Role first) {
  struct MessageRef {
    Role role;
    size_t call_index;
    BatchRun* run;
    size_t index;
  };
  std::vector<MessageRef> order;
  for (BatchRun& run : runs) {
    for (size_t i = 0; i < run.messages().size(); ++i) {
      const GroupMessage& message = run.messages()[i];
      order.push_back({message.port->end->role(), message.call_index, &run, i});
    }
  }
  std::ranges::stable_sort(order, [first](const MessageRef& a, const MessageRef& b) {
    if (a.role != b.role) return a.role == first;
    return a.call_index < b.call_index;
  });
  return std::ranges::all_of(
             order, [](const MessageRef& each) { return each.run->PostMessage(each.index); }) &&
         std::ranges::all_of(runs, [](BatchRun& run) { return run.ResolveCaptures(); });
}

using BatchRuns = std::vector<BatchRun>;

bool EnqueueAfter(BatchRuns& runs) {
  return std::ranges::all_of(runs, [](BatchRun& run) { return run.EnqueueAfter(); });
}

bool Enqueue(const std::shared_ptr<BatchRuns>& runs, const GroupContext& context,
             std::function<bool()>* rest) {
  std::vector<std::vector<size_t>> native;
  bool any = context.has_other_native_work;
  for (BatchRun& run : *runs) {
    native.push_back(run.Native());
    any = any || !native.back().empty();
  }
  const bool alone = runs->size() == 1;
  if (!std::ranges::all_of(*runs, [&](BatchRun& run) { return run.EnqueueBefore(any, alone); })) {
    return false;
  }
  const NativeStart native_start = context.start_native(native);
  if (native_start == NativeStart::kInProgress) *rest = [runs] { return EnqueueAfter(*runs); };
  return native_start == NativeStart::kComplete ? EnqueueAfter(*runs)
                                                : native_start == NativeStart::kInProgress;
}

}  // namespace

GroupOutcome RunGroup(const std::vector<Batch>& batches, const GroupContext& context) {
  GroupOutcome outcome;
  const bool receives = Receives(batches);
  const auto runs = std::make_shared<BatchRuns>();
  runs->reserve(batches.size());
  for (const Batch& each : batches) runs->emplace_back(each, receives, context, &outcome);
  const Role first = context.policy.kernel_waits ? Role::kSender : Role::kReceiver;
  const bool well = Decide(*runs, first) && Enqueue(runs, context, &outcome.enqueue_rest);
  if (!well && outcome.error.empty()) outcome.error = "CUDA or NCCL refused an operation";
  for (BatchRun& run : *runs) {
    // Without Break, peers would wait for ever for the messages that were posted.
    if (!well) run.Break();
    outcome.messages.push_back(run.Outcomes());
  }
  return outcome;
}

}  // namespace nccltune::sendrecv
