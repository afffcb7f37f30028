// SPDX-License-Identifier: Apache-2.0
// Handles the application's NCCL calls. open_group.h holds the calls of a group.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/content_hash.h"
#include "common/settings.h"
#include "common/token.h"
#include "sendrecv/calls/calls.h"
#include "sendrecv/calls/communicator_lifetimes.h"
#include "sendrecv/calls/message_call.h"
#include "sendrecv/calls/open_group.h"
#include "sendrecv/collective_work.h"
#include "sendrecv/group/communicator.h"
#include "sendrecv/group/watch.h"
#include "sendrecv/hooks/interpose.h"
#include "sendrecv/live_control.h"
#include "sendrecv/log.h"
#include "sendrecv/options.h"

namespace nccltune::sendrecv {
namespace {

using SharedCommunicator = std::shared_ptr<Communicator>;

// How long CommDestroy waits for the communicator's operations to complete. CommDestroy waits
// longer only for living peers that have not received all messages.
constexpr auto kDestroyWait = std::chrono::seconds(1);

pid_t g_process = 0;  // the process that created the interceptor

// Returns whether NCCL's calls on the new communicator block. Returns `default_blocks` if
// NCCL_COMM_BLOCKING is not set and there is no configuration.
bool Blocks(const nccl::CommConfig* config, bool default_blocks = true) {
  const std::string value = NcclSetting("NCCL_COMM_BLOCKING").value_or("");
  if (value == "0" || value == "1") return value == "1";
  return config == nullptr ? default_blocks : config->blocking != 0;
}

std::string KeyOf(const nccl::UniqueId* ids, int count, int ranks) {
  std::string key = std::to_string(ranks) + ":";
  key.append(ids[0].internal, sizeof(nccl::UniqueId) * static_cast<size_t>(count));
  return key;
}

// Returns a random key for a communicator whose ranks are all in this process. Returns an empty
// text if the system has no random numbers.
std::string NewKey() {
  std::string key(16, '\0');
  return RandomBytes(key.data(), key.size()) ? key : "";
}

class SendRecv final : public Interceptor {
 public:
  SendRecv(const SendRecvOptions& options, const Native& native)
      : Interceptor(native), options_(options) {
    Watcher::Get().SetExtraCheck([this] {
      if (children_.HasChildren()) children_.BeginMade();
    });
  }

  nccl::Result CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) override {
    const SharedCommunicator made = Join(KeyOf(&id, 1, ranks), ranks, rank, Blocks(nullptr));
    return TrackNew(made, comm, native().CommInitRank(comm, ranks, id, rank));
  }

  nccl::Result CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                  nccl::CommConfig* config) override {
    const SharedCommunicator made = Join(KeyOf(&id, 1, ranks), ranks, rank, Blocks(config));
    return TrackNew(made, comm, native().CommInitRankConfig(comm, ranks, id, rank, config));
  }

  nccl::Result CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                    nccl::UniqueId* id, nccl::CommConfig* config) override {
    SharedCommunicator made;
    const bool named = ids > 0 && id != nullptr;
    if (named) made = Join(KeyOf(id, ids, ranks), ranks, rank, Blocks(config));
    return TrackNew(made, comm, native().CommInitRankScalable(comm, ranks, rank, ids, id, config));
  }

  nccl::Result CommInitAll(nccl::Comm* comms, int devices, const int* list) override {
    std::vector<SharedCommunicator> made;
    made.reserve(static_cast<size_t>(std::max(devices, 0)));
    const std::string key = NewKey();
    for (int i = 0; !key.empty() && i < devices; ++i) {
      made.push_back(JoinOn(list == nullptr ? i : list[i], key, devices, i));
    }
    const nccl::Result result = native().CommInitAll(comms, devices, list);
    for (size_t i = 0; i < made.size(); ++i) TrackNew(made[i], comms + i, result);
    return result;
  }

  nccl::Result CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                         nccl::CommConfig* config) override {
    return MakeFrom(
        comm, "split " + std::to_string(color), color != nccl::kNoColor, config, made,
        [&](nccl::Comm* out) { return native().CommSplit(comm, color, key, out, config); });
  }

  nccl::Result CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                          nccl::CommConfig* config, int flags) override {
    return MakeFrom(comm, "shrink", true, config, made, [&](nccl::Comm* out) {
      return native().CommShrink(comm, excluded, count, out, config, flags);
    });
  }

  nccl::Result CommDestroy(nccl::Comm comm) override {
    const SplitChildren::KeptChildren ending = children_.End(comm);
    const SharedCommunicator communicator = RemoveFromTable(comm);
    // Break ends the waits of a failed communicator, so that Release need not wait for its
    // operations.
    const bool failed = communicator != nullptr && !communicator->Failure().why.empty();
    if (communicator != nullptr) LogRoutes(communicator->rank());
    if (failed) communicator->Break("the communicator was destroyed");
    retired_.Add(communicator);
    retired_.Release(kDestroyWait);
    return native().CommDestroy(comm);
  }

  nccl::Result CommAbort(nccl::Comm comm) override {
    const SplitChildren::KeptChildren ending = children_.End(comm);
    const SharedCommunicator communicator = RemoveFromTable(comm);
    if (communicator != nullptr) communicator->End("the communicator was aborted");
    if (communicator != nullptr) LogRoutes(communicator->rank());
    const nccl::Result result = native().CommAbort(comm);
    retired_.Add(communicator);
    retired_.Release(std::chrono::milliseconds(0));
    return result;
  }

  // Ends the library's waits before it calls NCCL, because NCCL may wait for the streams. After a
  // revocation NCCL refuses calls on the communicator, except calls that end the communicator or
  // create other communicators from it. Up to 2.32 NCCL refuses all flags but 0.
  nccl::Result CommRevoke(nccl::Comm comm, int flags) override {
    if (flags == 0) Revoke(comm);
    const nccl::Result result = native().CommRevoke(comm, flags);
    if (result == abi::kSuccess || result == abi::kInProgress) Revoke(comm);
    return result;
  }

  nccl::Result CommGetAsyncError(nccl::Comm comm, nccl::Result* error) override {
    const nccl::Result result = native().CommGetAsyncError(comm, error);
    if (result != abi::kSuccess || error == nullptr || *error == abi::kInProgress) return result;
    if (children_.HasChildren()) children_.BeginMade(*error == abi::kSuccess ? nullptr : comm);
    if (*error != abi::kSuccess) return result;
    *error = pending_.Progress(comm);
    if (*error != abi::kSuccess) return result;
    const SharedCommunicator communicator = communicators_.Find(comm).communicator;
    if (communicator == nullptr) return result;
    const Communicator::FailureInfo failure = communicator->Failure();
    if (failure.why.empty()) return result;
    Warn(failure.why);
    *error = failure.result;
    return result;
  }

  [[gnu::hot]] nccl::Result GroupStart(ThreadState& thread) override {
    OpenGroup& open = OpenGroup::Of(thread);
    if (open.HasHeldCalls()) [[unlikely]] {
      HoldNested(&open, native().GroupStart);
      open.Start();
      return abi::kSuccess;
    }
    const nccl::Result result = native().GroupStart();
    if (result == abi::kSuccess) open.Start();
    return result;
  }

  [[gnu::hot]] nccl::Result GroupEnd(ThreadState& thread) override {
    OpenGroup& open = OpenGroup::Of(thread);
    if (open.depth() == 1 && open.repeated.IsFullRepeat()) {
      const auto result = open.repeated.End(native(), communicators_.changes());
      if (result) {
        open.LeaveGroup();
        return *result;
      }
    }
    if (open.depth() != 1) return EndNested(&open, native().GroupEnd);
    return End(&open, native().GroupEnd);
  }

  nccl::Result GroupSimulateEnd(ThreadState& thread, nccl::SimInfo* info) override {
    OpenGroup& open = OpenGroup::Of(thread);
    const auto end = [this, info] { return native().GroupSimulateEnd(info); };
    if (open.depth() != 1) return EndNested(&open, native().GroupSimulateEnd, info);
    if (info == nullptr) return End(&open, end);
    StopRepeating(&open);
    if (open.IgnoresSimulation()) return End(&open, end);
    open.Flush(native());
    const OpenGroup::Contents ended = open.End();
    const nccl::Result result = end();
    BeginNew(ended, result);
    return result;
  }

  nccl::Result Enqueue(ThreadState& thread, const EnqueueCall& call) override {
    OpenGroup* const open = OpenGroup::Find(thread);
    if (open == nullptr || !open->IsOpen()) return CallCollective(call);
    StopRepeating(open);
    CollectiveWork::Get().NoteUntracked();
    if (open->failed() || !open->HasHeldCalls()) return open->CallNow(call);
    if (IsRefused(call, communicators_.Find(call.comm).ranks, native())) {
      open->Flush(native());
      return open->CallNow(call);
    }
    std::unique_ptr<EnqueueCall> copy = call.Copy();
    if (copy == nullptr) return open->CallNow(call);
    open->Hold(std::move(copy));
    return abi::kSuccess;
  }

  void MayHaveRefused(ThreadState& thread) noexcept override {
    OpenGroup* const open = OpenGroup::Find(thread);
    if (open != nullptr && open->IsOpen()) open->MarkDoubtful();
  }

  // NCCL destroys the operator at once. If a held call uses the operator, this call of RedOpDestroy
  // is held as well.
  nccl::Result RedOpDestroy(ThreadState& thread, nccl::RedOp op, nccl::Comm comm) override {
    OpenGroup* const open = OpenGroup::Find(thread);
    if (open == nullptr || !open->HoldsUseOf(op, comm)) return native().RedOpDestroy(op, comm);
    open->Hold(std::make_unique<TypedEnqueueCall<nccl::RedOp, nccl::Comm>>(native().RedOpDestroy,
                                                                           op, comm));
    return abi::kSuccess;
  }

  [[gnu::hot]] nccl::Result Send(ThreadState& thread, const void* buffer, size_t count,
                                 nccl::DataType type, int peer, nccl::Comm comm,
                                 nccl::Stream stream) override {
    return HandleMessage(thread, Role::kSender, const_cast<void*>(buffer), count, type, peer, comm,
                         stream);
  }

  [[gnu::hot]] nccl::Result Recv(ThreadState& thread, void* buffer, size_t count,
                                 nccl::DataType type, int peer, nccl::Comm comm,
                                 nccl::Stream stream) override {
    return HandleMessage(thread, Role::kReceiver, buffer, count, type, peer, comm, stream);
  }

 private:
  // Joins a communicator that NCCL is about to create. Returns null if NCCL must carry all its
  // messages.
  SharedCommunicator Join(const std::string& key, int ranks, int rank, bool blocks) {
    if (ranks < 2) return nullptr;
    SendRecvOptions options = options_;
    std::string why = AdaptToConnections(&options);
    SharedCommunicator made;
    if (why.empty()) made = Communicator::Join(key, rank, options, &why);
    // An empty reason has been logged before.
    if (made == nullptr && !why.empty()) Warn("NCCL carries all sends and receives: " + why);
    if (made != nullptr && !blocks) made->SetNonblocking();
    return made;
  }

  SharedCommunicator JoinOn(int device, const std::string& key, int ranks, int rank) {
    std::string why;
    const cu::Api* api = OpenCuda(&why);
    cu::Context context = api == nullptr ? nullptr : PrimaryContext(*api, device);
    if (context == nullptr) {
      Warn("NCCL carries all sends and receives: no context of CUDA on GPU " +
           std::to_string(device));
      return nullptr;
    }
    const ScopedRelaxedContext in(*api, context);
    return Join(key, ranks, rank, Blocks(nullptr));
  }

  // Handles a communicator that is split or shrunk from another. All ranks of the child make the
  // same calls on the parent, so they give the child the same number. `member` is true if this rank
  // is part of the child.
  template <typename Make>
  nccl::Result MakeFrom(nccl::Comm comm, const std::string& how, bool member,
                        const nccl::CommConfig* config, nccl::Comm* made, const Make& make) {
    const SharedCommunicator parent = FindReady(comm).communicator;
    if (parent == nullptr) return make(made);
    std::ostringstream key;
    key << std::hex << ContentHash(parent->key()) << " " << parent->NextChild() << " " << how;
    if (!member || made == nullptr) return make(made);
    const SharedCommunicator child = Join(key.str(), 2, -1, Blocks(config, parent->blocks()));
    if (child == nullptr) return make(made);
    if (parent->blocks()) return TrackNew(child, made, make(made));
    OpenGroup* const open = OpenGroup::Find(ThisThread());
    if (open != nullptr && open->IsOpen()) {
      StopRepeating(open);
      open->AddOther(abi::kSuccess);
    }
    const nccl::Result result = make(children_.AddChild(child, comm, made));
    const bool goes = result == abi::kSuccess || result == abi::kInProgress;
    children_.BeginMade(goes ? nullptr : comm);
    return result;
  }

  nccl::Result TrackNew(const SharedCommunicator& made, nccl::Comm* comm, nccl::Result result) {
    if (made == nullptr) return result;
    OpenGroup& open = OpenGroup::Of(ThisThread());
    if (open.IsOpen() && (result == abi::kSuccess || result == abi::kInProgress)) {
      StopRepeating(&open);
      open.AddNew({made, comm});
    } else {
      Begin(made, comm, result);
    }
    return result;
  }

  void Begin(const SharedCommunicator& made, const nccl::Comm* comm, nccl::Result result) {
    if (*comm != nullptr && result == abi::kInProgress) {
      made->SetNonblocking();
      pending_.AddCommunicator(made, *comm);
    } else if (*comm != nullptr && result == abi::kSuccess) {
      BeginMade(made, *comm);
    }
  }

  void BeginMade(const SharedCommunicator& made, nccl::Comm comm) {
    if (communicators_.Add(made, comm)) Watcher::Get().Add(made);
  }

  nccl::Result CallCollective(const EnqueueCall& call) {
    CollectiveWork& collectives = CollectiveWork::Get();
    if (!collectives.tracked()) {
      collectives.NoteUntracked();
      return call();
    }
    const std::shared_lock lock(collectives.calls());
    const nccl::Result result = call();
    NoteCollective(call.comm, call.stream);
    return result;
  }

  // Records an event after a collective.
  void NoteCollective(nccl::Comm comm, nccl::Stream stream) {
    const SharedCommunicator communicator = communicators_.Find(comm).communicator;
    if (communicator == nullptr) return CollectiveWork::Get().NoteUntracked();
    if (communicator->driver().Capturing(stream)) return CollectiveWork::Get().NoteCaptured();
    communicator->enqueued_work().Enqueued({.stream = stream, .ours = true, .native = {}});
  }

  void BeginNew(const OpenGroup::Contents& ended, nccl::Result result) {
    for (const OpenGroup::NewCommunicator& each : ended.made) {
      Begin(each.communicator, each.comm, result);
    }
  }

  // Finishes pending work of the communicator if NCCL's calls on it are complete. Returns the
  // communicator's entry.
  const CommunicatorTable::Entry& FindReady(nccl::Comm comm) {
    pending_.Progress(comm);
    return communicators_.Find(comm);
  }

  SharedCommunicator RemoveFromTable(nccl::Comm comm) {
    pending_.Forget(comm);
    SharedCommunicator taken = communicators_.Remove(comm);
    OpenGroup* const open = OpenGroup::Find(ThisThread());
    if (taken == nullptr || open == nullptr || !open->IsOpen()) return taken;
    StopRepeating(open);
    if (open->Forget(taken.get())) taken->End("the communicator has ended in a group of its own");
    return taken;
  }

  void Revoke(nccl::Comm comm) {
    const SharedCommunicator communicator = RemoveFromTable(comm);
    if (communicator == nullptr) return;
    communicator->End("the communicator was revoked");
    retired_.Add(communicator);
  }

  nccl::Result HandleMessage(ThreadState& thread, Role role, void* buffer, size_t count,
                             nccl::DataType type, int peer, nccl::Comm comm, nccl::Stream stream) {
    OpenGroup& open = OpenGroup::Of(thread);
    if (open.IsOpen() && open.repeated.TryRepeat(role, buffer, count, type, peer, comm, stream,
                                                 communicators_.changes())) {
      const nccl::Result result = role == Role::kSender
                                      ? native().Send(buffer, count, type, peer, comm, stream)
                                      : native().Recv(buffer, count, type, peer, comm, stream);
      if (result != abi::kSuccess) [[unlikely]] {
        // TryRepeat has counted the call, but NCCL refused the call. So drop it from the repeated
        // calls.
        StopRepeating(&open, 1);
        open.AddOther(result);
      }
      return result;
    }
    return HandleNewMessage({.role = role,
                             .buffer = buffer,
                             .count = count,
                             .type = type,
                             .peer = peer,
                             .comm = comm,
                             .stream = stream,
                             .communicator = nullptr},
                            &open);
  }

  // Handles a call outside of a group that repeats the thread's previous call. Returns nothing if
  // the call differs or cannot be repeated; then the caller must handle the call as a new one.
  std::optional<nccl::Result> HandleRepeatedMessage(const MessageCall& call, OpenGroup* open) {
    const uint64_t changes = communicators_.changes();
    const bool takes = open->repeated.TryRepeat(call.role, call.buffer, call.count, call.type,
                                                call.peer, call.comm, call.stream, changes);
    if (takes && open->repeated.IsFullRepeat()) {
      const auto result = open->repeated.CallAlone(native(), call.buffer, changes);
      if (result) return result;
    }
    open->repeated.Restart();
    return {};
  }

  [[gnu::noinline]] nccl::Result HandleNewMessage(MessageCall call, OpenGroup* open) {
    if (!open->IsOpen()) {
      if (const auto result = HandleRepeatedMessage(call, open)) return *result;
    }
    StopRepeating(open);
    const CommunicatorTable::Entry& entry = FindReady(call.comm);
    const int ranks = entry.ranks;
    call.communicator = entry.communicator;
    const Eligibility eligibility = EligibilityOfCall(call);
    call.eligible = eligibility == Eligibility::kEligible;
    if (eligibility == Eligibility::kUntracked) call.communicator = nullptr;
    if (call.communicator != nullptr && call.communicator->needs_check()) {
      const Communicator::FailureInfo failure = call.communicator->Failure();
      if (!failure.why.empty()) {
        Warn(failure.why);
        if (open->IsOpen()) {
          open->Fail(failure.result);
        } else {
          open->repeated.Restart();
        }
        return failure.result;
      }
    }
    if (open->IsOpen()) return Add(std::move(call), ranks, open);
    open->repeated.Restart();
    if (call.communicator == nullptr || (call.eligible && !IsReady(call.comm, native()))) {
      return CallNative(call, native());
    }
    GroupCalls calls;
    calls.held.push_back({.message = std::move(call), .other = nullptr});
    return Run(std::move(calls), open).result;
  }

  // Adds a message to the open group: passes it to NCCL at once, or holds it as open_group.h
  // describes.
  nccl::Result Add(MessageCall call, int ranks, OpenGroup* open) {
    if (open->failed() || (!open->HasHeldCalls() && !call.eligible)) {
      return open->CallNow(std::move(call), native());
    }
    if (IsRefused(call, ranks, native()) || (call.eligible && !IsReady(call.comm, native()))) {
      open->Flush(native());
      return open->CallNow(std::move(call), native());
    }
    open->Hold(std::move(call));
    return abi::kSuccess;
  }

  // Called when the open group differs from the thread's last group. Adds the calls that were
  // repeated so far to the open group, except the last `refused` ones, which NCCL has refused.
  void StopRepeating(OpenGroup* open, size_t refused = 0) {
    std::vector<MessageCall> calls = open->repeated.StopRepeating();
    calls.resize(calls.size() - refused);
    for (MessageCall& call : calls) {
      call.communicator = communicators_.Find(call.comm).communicator;
      open->AddAlreadyCalled(std::move(call));
    }
  }

  [[gnu::noinline]] nccl::Result End(OpenGroup* open, const std::function<nccl::Result()>& end) {
    StopRepeating(open);
    const bool failed = open->failed();
    if (failed) open->Flush(native());
    const bool doubtful = open->doubtful() && open->HasHeldCalls();
    OpenGroup::Contents ended = open->End();
    if (doubtful) return EndDoubtful(std::move(ended), open, end);
    GroupCalls& calls = ended.calls;
    const std::vector<GroupCalls::OtherWork> other_work = calls.other_work;
    GroupResult result;
    if (failed || (calls.already_called.empty() && calls.held.empty())) {
      result.native = result.result = end();
      if (failed) CheckRefused(calls, result.native);
    } else {
      calls.end = end;
      result = Run(std::move(calls), open, ended.error);
    }
    BeginNew(ended, result.native);
    if (CollectiveWork::Get().tracked()) {
      for (const auto& other : other_work) NoteCollective(other.comm, other.stream);
    }
    return ended.error == abi::kSuccess ? result.result : ended.error;
  }

  // Ends a group that NCCL may refuse. NCCL's group ends first, before the held calls are posted to
  // peers. If NCCL accepts its group, the held calls run in a second group.
  nccl::Result EndDoubtful(OpenGroup::Contents ended, OpenGroup* open,
                           const std::function<nccl::Result()>& end) {
    CallNested(ended.calls.held);
    std::erase_if(ended.calls.held, [](const HeldCall& held) { return held.nests; });
    GroupCalls passed;
    passed.already_called = std::exchange(ended.calls.already_called, {});
    passed.end = end;
    const nccl::Result result =
        passed.already_called.empty() ? end() : Run(std::move(passed), open, abi::kSuccess).result;
    BeginNew(ended, result);
    if (result != abi::kSuccess && result != abi::kInProgress) return result;
    const nccl::Result started = native().GroupStart();
    if (started != abi::kSuccess) return started;
    ended.calls.end = native().GroupEnd;
    const nccl::Result second = Run(std::move(ended.calls), open, ended.error).result;
    return second == abi::kSuccess ? result : second;
  }

  template <typename... Arguments>
  static void HoldNested(OpenGroup* open, nccl::Result (*function)(Arguments...),
                         Arguments... arguments) {
    open->HoldNested(std::make_unique<TypedEnqueueCall<Arguments...>>(function, arguments...));
  }

  // Ends a nested group, or passes an end without a group to NCCL. At the end of a nested group
  // NCCL only counts the depth.
  template <typename... Arguments>
  static nccl::Result EndNested(OpenGroup* open, nccl::Result (*function)(Arguments...),
                                Arguments... arguments) {
    if (!open->IsOpen()) return function(arguments...);
    open->LeaveGroup();
    if (!open->HasHeldCalls()) return function(arguments...);
    HoldNested(open, function, arguments...);
    return abi::kSuccess;
  }

  // Breaks communicators if NCCL has run a group although it refused one of the calls. The library
  // has not counted the messages of such a group, so the two ranks no longer agree. No NCCL is
  // known to do this.
  static void CheckRefused(const GroupCalls& calls, nccl::Result result) {
    if (result != abi::kSuccess && result != abi::kInProgress) return;
    for (const MessageCall& call : calls.already_called) {
      if (call.eligible) call.communicator->Break("NCCL ran a group although it refused a call");
    }
  }

  GroupResult Run(GroupCalls calls, OpenGroup* open, nccl::Result error = abi::kSuccess) {
    GroupResult result =
        RunCalls(std::move(calls), native(), error,
                 [open, changes = communicators_.changes()](const GroupCalls& group) {
                   open->repeated.Remember(group, changes);
                 });
    pending_.AddGroup(result.rest);
    return result;
  }

  const SendRecvOptions options_;
  CommunicatorTable communicators_{native()};
  RetiredCommunicators retired_;

  // AddWithoutStart is enough: the watcher already runs, because the parents are watched.
  SplitChildren children_{[this](const SharedCommunicator& made, nccl::Comm handle) {
    if (communicators_.Add(made, handle)) Watcher::Get().AddWithoutStart(made);
  }};

  PendingNonblocking pending_{
      native(), [this](const SharedCommunicator& made, nccl::Comm comm) { BeginMade(made, comm); }};
};

// Waits for receivers, but not in a forked child, where locks may be held for ever.
void WaitAtExit() {
  if (getpid() != g_process) return;
  WaitForReceivers();
  RemoveMetrics();
}

}  // namespace

std::unique_ptr<Interceptor> NewInterceptor(InterposeMode mode, const Native& native) {
  auto made = std::make_unique<SendRecv>(ReadOptions(mode), native);
  if (!ReadPath(SettingId::kSendrecvStats).empty()) std::atexit([] { LogCounts(""); });
  g_process = getpid();
  std::atexit(&WaitAtExit);
  LogCountsAtSignal();
  return made;
}

}  // namespace nccltune::sendrecv
