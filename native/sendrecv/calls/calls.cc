// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/calls/calls.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sendrecv/collective_work.h"
#include "sendrecv/group/watch.h"
#include "sendrecv/live_control.h"
#include "sendrecv/log.h"
#include "sendrecv/route.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

// A group waits for receivers to post for kMinReceiverWait plus the time that the copy takes, but
// never longer than kMaxReceiverWait. Then the group decides without the missing receivers.
constexpr auto kMinReceiverWait = std::chrono::microseconds(50);
constexpr auto kMaxReceiverWait = std::chrono::milliseconds(5);
// How long a group waits for a peer to capture the same message. If the peer does not, NCCL carries
// all later messages of the lane (message_lane.h), so this happens once for each lane.
constexpr auto kMaxCaptureWait = std::chrono::seconds(1);
// How long a group waits for its senders to post if waits are kernels (Policy::kernel_waits). NCCL
// carries the messages of the missing ones, which takes SMs.
constexpr auto kMaxSenderWait = std::chrono::milliseconds(1);
// Speed of a copy engine between two H200 GPUs.
constexpr uint64_t kBytesPerMicrosecond = 390'000;

// Returns whether the call is a message that the library counts.
bool IsTracked(const HeldCall& held) {
  return held.other == nullptr && held.message.communicator != nullptr;
}

// Carries out one group. Each public function locks the mutexes of the group's communicators.
class GroupRun {
 public:
  GroupRun(const GroupCalls& group, const Native& native) : group_(group), native_(native) {
    for (const MessageCall& call : group_.already_called) AddCommunicator(call);
    for (const HeldCall& held : group_.held) {
      if (IsTracked(held)) AddCommunicator(held.message);
    }
    // All threads lock communicators in the same order, to avoid deadlock.
    std::ranges::sort(communicators_, std::less<>());
  }

  nccl::Result Run(nccl::Result error, const Remember& remember) {
    const auto locks = Lock();
    if (error != abi::kSuccess) return Fail("a communicator of the same group has failed", error);
    const bool eligible = std::ranges::any_of(
        group_.held, [](const HeldCall& held) { return held.message.eligible; });
    if (!eligible) return RunNative(remember);
    // Prepare requires usable communicators, and a lane may fail during Prepare. So check before
    // and after Prepare.
    Communicator::FailureInfo failure = FindFailure();
    if (failure.why.empty()) {
      Prepare();
      failure = FindFailure();
    }
    if (!failure.why.empty()) return Fail(failure.why, failure.result);
    const std::string problem = Enqueue();
    // NCCL's calls are in progress. The program polls NCCL until the calls are complete. Then the
    // library calls Finish.
    if (problem.empty() && enqueue_rest_) return abi::kInProgress;
    return End(problem);
  }

  // Called when NCCL's calls are complete.
  nccl::Result Finish() {
    const auto locks = Lock();
    result_ = abi::kSuccess;
    return End(enqueue_rest_() && EnqueueReceiveChecks() && JoinStreams() ? "" : kRefused);
  }

  const std::vector<Communicator*>& communicators() const { return communicators_; }
  // Returns whether NCCL's calls are complete when they return.
  bool Blocks() const {
    return std::ranges::all_of(communicators_, [](Communicator* each) { return each->blocks(); });
  }
  // Returns the result of ending NCCL's group.
  nccl::Result native_end() const { return native_end_; }

 private:
  static constexpr const char* kRefused = "CUDA refused an operation";

  Communicator::FailureInfo FindFailure() const {
    for (Communicator* each : communicators_) {
      Communicator::FailureInfo problem = each->Failure();
      if (!problem.why.empty()) return problem;
    }
    return {};
  }

  std::vector<std::unique_lock<InlineMutex>> Lock() const {
    std::vector<std::unique_lock<InlineMutex>> locks;
    locks.reserve(communicators_.size());
    for (Communicator* each : communicators_) locks.emplace_back(each->mutex());
    return locks;
  }

  nccl::Result End(const std::string& problem) {
    for (size_t i = 0; i < batches_.size(); ++i) {
      // Do this after a failure as well, because some operations may have been enqueued.
      owners_[i]->enqueued_work().Enqueued({.stream = batches_[i].stream,
                                            .ours = ours_.empty() || ours_[i],
                                            .native = native_peers_[i]});
    }
    // `result_` is success or NCCL's error.
    return problem.empty() ? result_ : Fail(problem, ResultOf());
  }

  template <typename T>
  static size_t AddUnique(std::vector<T>* all, T one) {
    const auto found = std::ranges::find(*all, one);
    const auto index = static_cast<size_t>(found - all->begin());
    if (found == all->end()) all->push_back(one);
    return index;
  }

  void AddCommunicator(const MessageCall& call) {
    AddUnique(&communicators_, call.communicator.get());
  }

  static Port* PortOf(const MessageCall& call, bool make) {
    return call.communicator->FindPort(call.peer, call.role, make);
  }

  // Passes a group without eligible messages to NCCL and counts its messages.
  nccl::Result RunNative(const Remember& remember) {
    for (const MessageCall& call : group_.already_called) BatchOf(call);
    for (const HeldCall& held : group_.held) BatchOf(held.message);
    std::vector<size_t> call_indices(group_.held.size());
    std::iota(call_indices.begin(), call_indices.end(), 0);
    ours_.assign(batches_.size(), false);
    result_ = CallNative(call_indices);
    const bool runs = result_ == abi::kSuccess || result_ == abi::kInProgress;
    // A group that NCCL refused never runs, and the peer does not count its messages. So do not
    // count them on this side.
    if (runs) {
      WithdrawStaleOfDryRuns();
      for (const MessageCall& call : group_.already_called) CountCalled(call);
      for (const HeldCall& held : group_.held) CountCalled(held.message);
      ReleaseOthers();
    }
    if (result_ == abi::kInProgress) {
      enqueue_rest_ = [] { return true; };
      return result_;
    }
    const nccl::Result result = End("");
    if (runs) remember(group_);
    return result;
  }

  void CountCalled(const MessageCall& call) {
    Communicator& communicator = *call.communicator;
    if (communicator.options().dry_run && call.bytes() >= communicator.FloorOf(call.peer)) {
      return CountDry(call);
    }
    Port* const port = PortOf(call, false);
    if (port != nullptr) port->end->CountNative();
    const bool closed = port != nullptr && port->end->closed() && !port->end->is_unusable();
    ProcessCounts().Add(closed ? RouteOfClosed(port->end->gave_way())
                               : RouteWithoutLane(call.bytes(), communicator.options().from),
                        call.bytes());
  }

  void WithdrawStaleOfDryRuns() {
    for (Communicator* each : communicators_) {
      if (each->options().dry_run) each->WithdrawStale();
    }
  }

  // Counts the route that the message would take in a real run. The peer makes a dry run as well,
  // so no slots are used.
  void CountDry(const MessageCall& call) {
    Port* const port = PortOf(call, true);
    Route route = Route::kElsewhere;
    if (port != nullptr) {
      MapPeerMemoryOnce(call);
      GroupMessage message;
      message.address = reinterpret_cast<DeviceAddress>(call.buffer);
      message.bytes = call.bytes();
      message.port = port;
      message.captured = captured_[BatchOf(call)];
      route = LocalRouteOfCall(call, !std::exchange(port->connected, true), &message);
      if (route == Route::kPushed) route = Route::kDry;
      if (message.captured && route != Route::kSmall) route = Route::kCaptured;
    }
    ProcessCounts().Add(route, call.bytes());
  }

  void Prepare() {
    for (Communicator* each : communicators_) each->WithdrawStale();
    for (const MessageCall& call : group_.already_called) {
      BatchOf(call);
      CountCalled(call);
    }
    for (const GroupCalls::OtherWork& other : group_.other_work) AddStream(other);
    for (size_t call_index = 0; call_index < group_.held.size(); ++call_index) {
      const HeldCall& held = group_.held[call_index];
      if (!IsTracked(held)) {
        native_calls_.push_back(call_index);
        continue;
      }
      const MessageCall& call = held.message;
      const size_t batch = BatchOf(call);
      // Both sides create a lane at the lane's first eligible message.
      Port* const port = PortOf(call, call.eligible);
      if (port == nullptr) {
        native_calls_.push_back(call_index);
        const uint64_t from = call.communicator->options().from;
        ProcessCounts().Add(RouteWithoutLane(call.bytes(), from), call.bytes());
        continue;
      }
      MapPeerMemoryOnce(call);
      batches_[batch].messages.push_back(MessageOf(call, port, call_index, batch));
    }
    ReleaseOthers();
  }

  // Ends what IsIdle has begun.
  void ReleaseOthers() {
    other_communicators_.clear();
    if (no_collectives_.owns_lock()) no_collectives_.unlock();
  }

  // Maps the memory that the peer has exported, once for each peer of the group.
  void MapPeerMemoryOnce(const MessageCall& call) {
    const auto peer = std::pair(call.communicator.get(), call.peer);
    if (std::ranges::find(mapped_peers_, peer) != mapped_peers_.end()) return;
    mapped_peers_.push_back(peer);
    call.communicator->MapPeerMemory(call.peer, [this] { return IsIdle(); });
  }

  // Returns whether no communicator of the process has work in progress. Returns false as well
  // while another thread is in a call. Keeps the mutexes of all communicators until Prepare ends,
  // so that no new work begins.
  bool IsIdle() {
    if (!no_collectives_.owns_lock() && !no_collectives_.try_lock()) return false;
    if (CollectiveWork::Get().MayRun()) return false;
    std::vector<Stream> streams;
    for (const Batch& batch : batches_) AddUnique<Stream>(&streams, batch.stream);
    for (const std::shared_ptr<Communicator>& each : Watcher::Get().All()) {
      const bool held = std::ranges::find(communicators_, each.get()) != communicators_.end();
      if (held) continue;
      const bool known = std::ranges::any_of(
          other_communicators_, [&](const auto& other) { return other.communicator == each; });
      if (known) continue;
      std::unique_lock lock(each->mutex(), std::try_to_lock);
      if (!lock.owns_lock()) return false;
      other_communicators_.push_back({.communicator = each, .lock = std::move(lock)});
    }
    return std::ranges::all_of(communicators_,
                               [&](Communicator* each) { return each->IsIdle(streams); }) &&
           std::ranges::all_of(other_communicators_, [&](const OtherCommunicator& each) {
             return each.communicator->IsIdle(streams);
           });
  }

  size_t BatchOf(const MessageCall& call) { return BatchOf(call.communicator.get(), call.stream); }

  size_t BatchOf(Communicator* communicator, Stream stream) {
    for (size_t i = 0; i < batches_.size(); ++i) {
      if (owners_[i] == communicator && batches_[i].stream == stream) return i;
    }
    owners_.push_back(communicator);
    routes_.emplace_back();
    native_peers_.emplace_back();
    captured_.push_back(communicator->driver().Capturing(stream));
    batches_.push_back({.messages = {},
                        .stream = stream,
                        .driver = &communicator->driver(),
                        .helpers = &communicator->helpers()});
    return batches_.size() - 1;
  }

  // Adds the stream of a collective or of a one-sided operation, so that JoinStreams includes the
  // stream. Does nothing if no message of the group has the same communicator.
  void AddStream(const GroupCalls::OtherWork& other) {
    const auto same = [&](const MessageCall& call) {
      return call.comm == other.comm && call.communicator != nullptr;
    };
    const auto called = std::ranges::find_if(group_.already_called, same);
    const auto held = std::ranges::find_if(group_.held, same, &HeldCall::message);
    if (called != group_.already_called.end()) {
      BatchOf(called->communicator.get(), other.stream);
    } else if (held != group_.held.end()) {
      BatchOf(held->message.communicator.get(), other.stream);
    }
  }

  // Returns the message for RunGroup. Sets `can_copy` from the result of LocalRoute.
  GroupMessage MessageOf(const MessageCall& call, Port* port, size_t call_index, size_t batch) {
    Communicator& communicator = *call.communicator;
    GroupMessage message = {.port = port,
                            .call_index = call_index,
                            .address = reinterpret_cast<DeviceAddress>(call.buffer),
                            .bytes = call.bytes()};
    message.small = message.bytes < communicator.FloorOf(call.peer);
    message.captured = captured_[batch];
    Route route = LocalRouteOfCall(call, port->end->IsFresh(), &message);
    message.can_copy = route == Route::kPushed;
    const bool small = message.bytes < communicator.options().from;
    if (message.captured && communicator.options().policy.graphs && !small) {
      // A peer that captures the same message maps the memory at that time, so the memory need not
      // be mapped yet.
      message.can_copy = message.can_copy || route == Route::kNotYet;
      route = Route::kCaptured;
    }
    routes_[batch].push_back(route);
    return message;
  }

  // Enqueues the group. Returns an error text, or an empty text after success.
  std::string Enqueue() {
    std::optional<Clock::time_point> wait_began;
    std::optional<Clock::time_point> capture_wait_began;
    const bool kernel_waits = communicators_.front()->options().policy.kernel_waits;
    const GroupContext context = {
        .policy = communicators_.front()->options().policy,
        .wait_for_receiver =
            [&](uint64_t bytes) {
              const auto now = Clock::now();
              if (!wait_began) wait_began = now;
              const auto waited = now - *wait_began;
              if (waited < kMinReceiverWait) return true;
              std::this_thread::yield();
              if (kernel_waits) return bytes != 0 && waited < kMaxSenderWait;
              const auto more = std::chrono::microseconds(bytes / kBytesPerMicrosecond);
              return waited < std::min<Clock::duration>(kMinReceiverWait + more, kMaxReceiverWait);
            },
        .wait_for_capture =
            [&] {
              const auto now = Clock::now();
              if (!capture_wait_began) capture_wait_began = now;
              std::this_thread::sleep_for(std::chrono::microseconds(20));
              return now - *capture_wait_began < kMaxCaptureWait;
            },
        .has_other_native_work =
            group_.others || !group_.already_called.empty() || !native_calls_.empty(),
        .start_native =
            [&](const std::vector<std::vector<size_t>>& messages) {
              result_ = CallNative(messages);
              if (result_ == abi::kInProgress) return NativeStart::kInProgress;
              return result_ == abi::kSuccess ? NativeStart::kComplete : NativeStart::kRefused;
            },
    };
    if (!JoinStreams() || !EnqueueSendSums()) return kRefused;
    GroupOutcome outcome = RunGroup(batches_, context);
    CountRoutes(outcome);
    if (outcome.error.empty()) {
      for (const std::vector<MessageOutcome>& messages : outcome.messages) {
        ours_.push_back(!checked_.empty() || std::ranges::any_of(messages, [](MessageOutcome each) {
          return each.path != Path::kNative;
        }));
      }
    }
    cause_ = outcome.cause;
    enqueue_rest_ = std::move(outcome.enqueue_rest);
    if (enqueue_rest_) return "";
    if (!outcome.error.empty() && result_ == abi::kSuccess) return outcome.error;
    if (result_ != abi::kSuccess) return "";
    return EnqueueReceiveChecks() && JoinStreams() ? "" : kRefused;
  }

  // Enqueues the checksums of sends, before any operation that a peer waits for.
  bool EnqueueSendSums() {
    return std::ranges::all_of(CheckedMessages(), [](const CheckedMessage& each) {
      const GroupMessage& message = *each.message;
      const bool sends = message.port->end->role() == Role::kSender;
      return !sends || each.checked.verifier->Sum(each.stream, message.address, message.bytes,
                                                  each.checked.sums, each.checked.number);
    });
  }

  bool EnqueueReceiveChecks() {
    return std::ranges::all_of(checked_, [](const CheckedMessage& each) {
      const GroupMessage& message = *each.message;
      const bool sends = message.port->end->role() == Role::kSender;
      return sends || each.checked.verifier->Check(each.stream, message.address, message.bytes,
                                                   each.checked.sums, each.checked.number,
                                                   message.port->name);
    });
  }

  struct CheckedMessage {
    const GroupMessage* message = nullptr;
    Stream stream = nullptr;
    Communicator::Checked checked;
  };

  const std::vector<CheckedMessage>& CheckedMessages() {
    if (!communicators_.front()->options().verify) return checked_;
    // Number the messages in the order of the calls, because the peer numbers them in the same
    // order.
    for (size_t call_index = 0; call_index < group_.held.size(); ++call_index) {
      for (size_t i = 0; i < batches_.size(); ++i) {
        const auto found =
            std::ranges::find(batches_[i].messages, call_index, &GroupMessage::call_index);
        if (found == batches_[i].messages.end() || found->small || found->captured) continue;
        const MessageCall& call = group_.held[call_index].message;
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
      case GroupOutcome::Cause::kUsage:
        return abi::kInvalidUsage;
      case GroupOutcome::Cause::kPeer:
        return abi::kRemoteError;
      case GroupOutcome::Cause::kRefused:
        break;
    }
    return abi::kUnhandledCudaError;
  }

  // Makes all streams of a communicator wait for each other, as NCCL does within one group.
  bool JoinStreams() {
    return std::ranges::all_of(communicators_, [&](Communicator* communicator) {
      std::vector<Stream> streams;
      for (size_t i = 0; i < batches_.size(); ++i) {
        if (owners_[i] == communicator) streams.push_back(batches_[i].stream);
      }
      return streams.size() < 2 || communicator->JoinStreams(streams);
    });
  }

  nccl::Result CallNative(const std::vector<std::vector<size_t>>& messages) {
    std::vector<size_t> call_indices = native_calls_;
    for (size_t batch = 0; batch < messages.size(); ++batch) {
      for (const size_t i : messages[batch]) {
        call_indices.push_back(batches_[batch].messages[i].call_index);
      }
    }
    std::ranges::sort(call_indices);
    return CallNative(call_indices);
  }

  void BeginNative(const MessageCall& call) {
    call.communicator->enqueued_work().BeginNative({&call.peer, 1});
    AddUnique(&native_peers_[BatchOf(call)], call.peer);
  }

  nccl::Result CallNative(const std::vector<size_t>& call_indices) {
    native_called_ = true;
    for (const MessageCall& call : group_.already_called) BeginNative(call);
    nccl::Result result = abi::kSuccess;
    for (const size_t call_index : call_indices) {
      const HeldCall& held = group_.held[call_index];
      if (IsTracked(held)) BeginNative(held.message);
      const nccl::Result called =
          held.other != nullptr ? (*held.other)() : sendrecv::CallNative(held.message, native_);
      const bool fails = result != abi::kSuccess && result != abi::kInProgress;
      if (called != abi::kSuccess && !fails) result = called;
    }
    if (!group_.end) return result;
    native_end_ = group_.end();
    return result == abi::kSuccess || result == abi::kInProgress ? native_end_ : result;
  }

  void CountRoutes(const GroupOutcome& outcome) {
    for (size_t batch = 0; batch < outcome.messages.size(); ++batch) {
      for (size_t i = 0; i < outcome.messages[batch].size(); ++i) {
        const GroupMessage& message = batches_[batch].messages[i];
        const Route route = RouteToCount(outcome.messages[batch][i], routes_[batch][i], message);
        ProcessCounts().Add(route, message.bytes);
      }
    }
  }

  nccl::Result Fail(const std::string& problem, nccl::Result result) {
    Warn(problem);
    for (Communicator* each : communicators_) each->Break(problem);
    // NCCL's group must end even after an error.
    if (group_.end && !native_called_) {
      CallNested(group_.held);
      native_end_ = group_.end();
    }
    return result;
  }

  // A locked communicator of the process that is not part of the group.
  struct OtherCommunicator {
    std::shared_ptr<Communicator> communicator;
    std::unique_lock<InlineMutex> lock;
  };

  const GroupCalls& group_;
  const Native& native_;
  std::unique_lock<std::shared_mutex> no_collectives_{CollectiveWork::Get().calls(),
                                                      std::defer_lock};
  std::vector<OtherCommunicator> other_communicators_;
  std::vector<Communicator*> communicators_;
  std::vector<Batch> batches_;
  std::vector<Communicator*> owners_;  // by batch
  std::vector<bool> captured_;         // by batch
  // By batch: whether the batch has operations of the library. Empty after an error.
  std::vector<bool> ours_;
  std::vector<std::vector<int>> native_peers_;  // by batch: peers of the messages that NCCL carries
  std::vector<std::vector<Route>> routes_;      // by batch and message: the result of LocalRoute
  std::vector<size_t> native_calls_;            // indices of the held calls that always go to NCCL
  std::vector<std::pair<Communicator*, int>> mapped_peers_;
  std::vector<CheckedMessage> checked_;
  nccl::Result result_ = abi::kSuccess;
  nccl::Result native_end_ = abi::kSuccess;
  // Enqueues the remaining operations. Set while NCCL's calls are in progress.
  std::function<bool()> enqueue_rest_;
  bool native_called_ = false;
  GroupOutcome::Cause cause_ = GroupOutcome::Cause::kRefused;
};

// Owns the calls of its group, because NCCL's calls may still be in progress when RunCalls returns.
class NonblockingGroupRun final : public PendingGroup {
 public:
  NonblockingGroupRun(GroupCalls group, const Native& native)
      : group_(std::move(group)), run_(group_, native) {}

  GroupRun& run() { return run_; }

  std::vector<nccl::Comm> Comms() const override {
    std::vector<nccl::Comm> comms;
    const auto add = [&](const MessageCall& call) {
      if (std::ranges::find(comms, call.comm) == comms.end()) comms.push_back(call.comm);
    };
    for (const MessageCall& call : group_.already_called) add(call);
    for (const HeldCall& held : group_.held) {
      if (IsTracked(held)) add(held.message);
    }
    return comms;
  }
  nccl::Result Finish() override { return run_.Finish(); }
  void Abandon(const std::string& why) override {
    for (Communicator* each : run_.communicators()) each->Break(why);
  }

 private:
  const GroupCalls group_;
  GroupRun run_;
};

}  // namespace

GroupResult RunCalls(GroupCalls group, const Native& native, nccl::Result error,
                     const Remember& remember) {
  GroupResult result;
  if (GroupRun run(group, native); run.Blocks()) {
    result.result = run.Run(error, remember);
    result.native = run.native_end();
    return result;
  }
  auto run = std::make_shared<NonblockingGroupRun>(std::move(group), native);
  result.result = run->run().Run(error, remember);
  result.native = run->run().native_end();
  if (result.result == abi::kInProgress) result.rest = std::move(run);
  return result;
}

}  // namespace nccltune::sendrecv
