// SPDX-License-Identifier: Apache-2.0
//
// What is done with the application's calls of NCCL.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/content_hash.h"
#include "common/settings.h"
#include "sendrecv/calls.h"
#include "sendrecv/communicator.h"
#include "sendrecv/ended.h"
#include "sendrecv/interpose.h"
#include "sendrecv/later.h"
#include "sendrecv/parts.h"
#include "sendrecv/ranges.h"
#include "sendrecv/say.h"
#include "sendrecv/say_counts.h"
#include "sendrecv/small.h"
#include "sendrecv/watch.h"

namespace nccltune::sendrecv {
namespace {

using Shared = std::shared_ptr<Communicator>;

// As long as a communicator that is destroyed may take to end what it began.
constexpr auto kFarewell = std::chrono::seconds(1);

pid_t g_process = 0;  // that made the interceptor

bool IsSet(const char* name, const char* value) {
  const char* set = std::getenv(name);
  return set != nullptr && std::strcmp(set, value) == 0;
}

// Otherwise its calls come back before they are done. `unsaid`: without a configuration.
bool Blocks(const nccl::Config* config, bool unsaid = true) {
  for (const char* const value : {"0", "1"}) {
    if (IsSet("NCCL_COMM_BLOCKING", value)) return *value == '1';
  }
  return config == nullptr ? unsaid : config->blocking != 0;
}

std::string KeyOf(const nccl::UniqueId* ids, int count, int ranks) {
  std::string key = std::to_string(ranks) + ":";
  key.append(ids[0].internal, sizeof(nccl::UniqueId) * static_cast<size_t>(count));
  return key;
}

// What a thread has of its groups.
struct OpenGroup {
  struct Made {
    Shared communicator;
    nccl::Comm* comm = nullptr;
  };

  int depth = 0;
  bool alone = true;  // nothing is in the group but what `again` has
  SmallCalls again;
  CallGroup calls;
  std::vector<Made> made;  // with the group's end

  // NCCL has more to do in it.
  void AddOther() {
    if (depth == 0) return;
    alone = false;
    calls.others = true;
  }

  static OpenGroup& Of(Thread& thread) {
    if (thread.own == nullptr) Make(&thread);
    return *static_cast<OpenGroup*>(thread.own);
  }

 private:
  // Until the thread ends.
  [[gnu::noinline]] static void Make(Thread* thread) {
    struct Keeper {
      explicit Keeper(Thread* thread) : kept(*thread) {}
      ~Keeper() { delete static_cast<OpenGroup*>(std::exchange(kept.own, nullptr)); }
      Thread& kept;
    };
    thread->own = new OpenGroup;
    thread_local const Keeper keeper(thread);
  }
};

class SendRecv final : public Interceptor {
 public:
  SendRecv(const Options& options, const Native& native) : Interceptor(native), options_(options) {
    Watcher::Get().Also([this] {
      if (parts_.Any()) parts_.Look();
    });
  }

  nccl::Result CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) override {
    const Shared made = Join(KeyOf(&id, 1, ranks), ranks, rank, Blocks(nullptr));
    return Made(made, comm, native().CommInitRank(comm, ranks, id, rank));
  }

  nccl::Result CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                  nccl::Config* config) override {
    const Shared made = Join(KeyOf(&id, 1, ranks), ranks, rank, Blocks(config));
    return Made(made, comm, native().CommInitRankConfig(comm, ranks, id, rank, config));
  }

  nccl::Result CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                    nccl::UniqueId* id, nccl::Config* config) override {
    Shared made;
    const bool named = ids > 0 && id != nullptr;
    if (named) made = Join(KeyOf(id, ids, ranks), ranks, rank, Blocks(config));
    return Made(made, comm, native().CommInitRankScalable(comm, ranks, rank, ids, id, config));
  }

  nccl::Result CommInitAll(nccl::Comm* comms, int devices, const int* list) override {
    std::vector<Shared> made;
    made.reserve(static_cast<size_t>(std::max(devices, 0)));
    std::random_device random;
    const std::string key =
        std::to_string(getpid()) + " " + std::to_string(random()) + " " + std::to_string(random());
    for (int i = 0; i < devices; ++i) {
      made.push_back(JoinOn(list == nullptr ? i : list[i], key, devices, i));
    }
    const nccl::Result result = native().CommInitAll(comms, devices, list);
    for (size_t i = 0; i < made.size(); ++i) Made(made[i], comms + i, result);
    return result;
  }

  nccl::Result CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                         nccl::Config* config) override {
    return MakeFrom(
        comm, "split " + std::to_string(color), color != nccl::kNoColor, config, made,
        [&](nccl::Comm* out) { return native().CommSplit(comm, color, key, out, config); });
  }

  nccl::Result CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                          nccl::Config* config, int flags) override {
    return MakeFrom(comm, "shrink", true, config, made, [&](nccl::Comm* out) {
      return native().CommShrink(comm, excluded, count, out, config, flags);
    });
  }

  nccl::Result CommDestroy(nccl::Comm comm) override {
    const Parts::Ending ending = parts_.End(comm);
    const Shared communicator = Take(comm);
    // Then there is nothing to wait for.
    const bool failed = communicator != nullptr && !communicator->Failure().why.empty();
    if (failed) communicator->Break("the communicator was destroyed");
    ended_.Add(communicator);
    ended_.GiveBack(kFarewell);
    return native().CommDestroy(comm);
  }

  nccl::Result CommAbort(nccl::Comm comm) override {
    const Parts::Ending ending = parts_.End(comm);
    const Shared communicator = Take(comm);
    if (communicator != nullptr) communicator->Break("the communicator was aborted");
    const nccl::Result result = native().CommAbort(comm);
    ended_.Add(communicator);
    ended_.GiveBack(std::chrono::milliseconds(0));
    return result;
  }

  nccl::Result CommRevoke(nccl::Comm comm, int flags) override {
    const Shared communicator = Find(comm);
    if (communicator != nullptr) communicator->Break("the communicator was revoked");
    return native().CommRevoke(comm, flags);
  }

  nccl::Result CommGetAsyncError(nccl::Comm comm, nccl::Result* error) override {
    const nccl::Result result = native().CommGetAsyncError(comm, error);
    if (result != abi::kSuccess || error == nullptr || *error == abi::kInProgress) return result;
    if (parts_.Any()) parts_.Look(*error == abi::kSuccess ? nullptr : comm);
    if (*error != abi::kSuccess) return result;
    *error = later_.Progress(comm);
    if (*error != abi::kSuccess) return result;
    const Shared communicator = Find(comm);
    if (communicator == nullptr) return result;
    const Communicator::Trouble trouble = communicator->Failure();
    if (trouble.why.empty()) return result;
    Warn(trouble.why);
    *error = trouble.result;
    return result;
  }

  [[gnu::hot]] nccl::Result GroupStart(Thread& thread) override {
    const nccl::Result result = native().GroupStart();
    OpenGroup& open = OpenGroup::Of(thread);
    if (result == abi::kSuccess) ++open.depth;
    return result;
  }

  [[gnu::hot]] nccl::Result GroupEnd(Thread& thread) override {
    OpenGroup& open = OpenGroup::Of(thread);
    if (open.depth == 1 && open.alone && open.again.IsWhole()) {
      const auto result = open.again.Run(native(), true, changes_.load(std::memory_order_acquire));
      if (result) {
        open.depth = 0;
        return *result;
      }
    }
    return End(&open);
  }

  void Work() noexcept override {
    const Thread& thread = ThisThread();
    if (thread.own != nullptr) static_cast<OpenGroup*>(thread.own)->AddOther();
  }

  [[gnu::hot]] nccl::Result Send(Thread& thread, const void* buffer, size_t count,
                                 nccl::DataType type, int peer, nccl::Comm comm,
                                 nccl::Stream stream) override {
    return Carry(thread, Role::kSender, const_cast<void*>(buffer), count, type, peer, comm, stream);
  }

  [[gnu::hot]] nccl::Result Recv(Thread& thread, void* buffer, size_t count, nccl::DataType type,
                                 int peer, nccl::Comm comm, nccl::Stream stream) override {
    return Carry(thread, Role::kReceiver, buffer, count, type, peer, comm, stream);
  }

 private:
  // Null: NCCL carries all of it.
  Shared Join(const std::string& key, int ranks, int rank, bool blocks) {
    if (ranks < 2) return nullptr;
    std::string why;
    Shared made;
    if (IsSet("CUDA_DEVICE_MAX_CONNECTIONS", "1")) {
      why = "with CUDA_DEVICE_MAX_CONNECTIONS=1 a stream that waits keeps all others waiting";
    } else {
      made = Communicator::Join(key, rank, options_, &why);
    }
    if (made == nullptr) Warn("NCCL carries all sends and receives: " + why);
    if (made != nullptr && !blocks) made->DoNotBlock();
    return made;
  }

  Shared JoinOn(int device, const std::string& key, int ranks, int rank) {
    std::string why;
    const cu::Api* api = cu::Open(&why);
    cu::Context context = api == nullptr ? nullptr : PrimaryContext(*api, device);
    if (context == nullptr) {
      Warn("NCCL carries all sends and receives: no context of CUDA on GPU " +
           std::to_string(device));
      return nullptr;
    }
    const InContext in(*api, context);
    return Join(key, ranks, rank, Blocks(nullptr));
  }

  // A communicator from another, whose ranks all come here, whoever is a member of it.
  template <typename Make>
  nccl::Result MakeFrom(nccl::Comm comm, const std::string& how, bool member,
                        const nccl::Config* config, nccl::Comm* made, const Make& make) {
    const Shared parent = FindReady(comm);
    if (parent == nullptr) return make(made);
    std::ostringstream key;
    key << std::hex << ContentHash(parent->key()) << " " << parent->NextChild() << " " << how;
    if (!member || made == nullptr) return make(made);
    const Shared child = Join(key.str(), 2, -1, Blocks(config, parent->blocks()));
    if (child == nullptr) return make(made);
    if (parent->blocks()) return Made(child, made, make(made));
    OpenGroup::Of(ThisThread()).AddOther();
    const nccl::Result result = make(parts_.Expect(child, comm, made));
    const bool goes = result == abi::kSuccess || result == abi::kInProgress;
    parts_.Look(goes ? nullptr : comm);
    return result;
  }

  nccl::Result Made(const Shared& made, nccl::Comm* comm, nccl::Result result) {
    if (made == nullptr) return result;
    OpenGroup& open = OpenGroup::Of(ThisThread());
    if (open.depth > 0 && (result == abi::kSuccess || result == abi::kInProgress)) {
      open.alone = false;
      open.made.push_back({made, comm});
    } else {
      Begin(made, comm, result);
    }
    return result;
  }

  void Begin(const Shared& made, const nccl::Comm* comm, nccl::Result result) {
    if (*comm != nullptr && result == abi::kInProgress) {
      made->DoNotBlock();
      later_.Expect(made, *comm);
    } else if (*comm != nullptr && result == abi::kSuccess) {
      BeginMade(made, *comm);
    }
  }

  void BeginMade(const Shared& made, nccl::Comm comm) {
    if (Know(made, comm)) Watcher::Get().Add(made);
  }

  // False: NCCL does not know its rank.
  bool Know(const Shared& made, nccl::Comm comm) {
    int rank = -1;
    if (native().CommUserRank(comm, &rank) != abi::kSuccess) return false;
    made->Begin(rank);
    const std::unique_lock lock(mutex_);
    communicators_[comm] = made;
    ++changes_;
    return true;
  }

  const Shared& Find(nccl::Comm comm) {
    // A thread asks for the same one again and again.
    struct Last {
      nccl::Comm comm = nullptr;
      uint64_t changes = 0;
      Shared communicator;
    };
    thread_local Last last;
    const uint64_t changes = changes_.load(std::memory_order_acquire);
    if (last.comm == comm && last.changes == changes) return last.communicator;
    const std::shared_lock lock(mutex_);
    const auto found = communicators_.find(comm);
    last = {.comm = comm,
            .changes = changes_.load(),
            .communicator = found == communicators_.end() ? nullptr : found->second};
    return last.communicator;
  }

  // Where NCCL has been waited for, what comes then is done.
  const Shared& FindReady(nccl::Comm comm) {
    later_.Progress(comm);
    return Find(comm);
  }

  Shared Take(nccl::Comm comm) {
    later_.Forget(comm);
    const std::unique_lock lock(mutex_);
    const auto found = communicators_.find(comm);
    if (found == communicators_.end()) return nullptr;
    Shared taken = std::move(found->second);
    communicators_.erase(found);
    ++changes_;
    return taken;
  }

  // What NCCL says something about, or what never leaves the GPU.
  static bool IsNccls(const Call& call) {
    return call.communicator == nullptr || call.peer == call.communicator->rank() ||
           call.peer < 0 || nccl::SizeOf(call.type) == 0 || call.bytes() == 0 ||
           call.buffer == nullptr;
  }

  nccl::Result Carry(Thread& thread, Role role, void* buffer, size_t count, nccl::DataType type,
                     int peer, nccl::Comm comm, nccl::Stream stream) {
    OpenGroup& open = OpenGroup::Of(thread);
    if (open.alone && open.again.Take(role, buffer, count, type, peer, comm, stream)) {
      return open.depth > 0 ? abi::kSuccess : EndOne(&open);
    }
    return CarryNew(role, buffer, count, type, peer, comm, stream, &open);
  }

  [[gnu::noinline]] nccl::Result CarryNew(Role role, void* buffer, size_t count,
                                          nccl::DataType type, int peer, nccl::Comm comm,
                                          nccl::Stream stream, OpenGroup* open) {
    const nccl::Result returned = Return(open);
    if (returned != abi::kSuccess) return returned;
    return Carry({.role = role,
                  .buffer = buffer,
                  .count = count,
                  .type = type,
                  .peer = peer,
                  .comm = comm,
                  .stream = stream,
                  .communicator = nullptr},
                 open);
  }

  nccl::Result Carry(Call call, OpenGroup* open) {
    call.communicator = FindReady(call.comm);
    if (IsNccls(call)) {
      open->AddOther();
      return CallOne(call, native());
    }
    if (open->depth == 0) {
      return Run({.calls = {std::move(call)}, .grouped = false, .others = false}, &open->again);
    }
    open->alone = false;
    open->calls.calls.push_back(std::move(call));
    return abi::kSuccess;
  }

  // A message that is a group of its own.
  [[gnu::noinline]] nccl::Result EndOne(OpenGroup* open) {
    if (open->again.IsWhole()) {
      const auto result =
          open->again.Run(native(), false, changes_.load(std::memory_order_acquire));
      if (result) return *result;
    }
    return Return(open);
  }

  [[gnu::noinline]] nccl::Result End(OpenGroup* open) {
    if (open->depth != 1) {
      if (open->depth > 1) --open->depth;
      return native().GroupEnd();
    }
    const nccl::Result returned = Return(open);
    open->depth = 0;
    open->alone = true;
    CallGroup group = std::exchange(open->calls, {});
    const std::vector<OpenGroup::Made> made = std::exchange(open->made, {});
    group.grouped = true;
    if (!made.empty()) {
      // NCCL makes communicators before anything else of their group.
      const nccl::Result result = native().GroupEnd();
      for (const OpenGroup::Made& each : made) Begin(each.communicator, each.comm, result);
      if (group.calls.empty() || result != abi::kSuccess) return result;
      if (native().GroupStart() != abi::kSuccess) return abi::kInternalError;
      group.others = false;
    }
    if (group.calls.empty()) {
      const nccl::Result result = native().GroupEnd();
      return returned == abi::kSuccess ? result : returned;
    }
    const nccl::Result result = Run(group, &open->again);
    // Room for the next one's.
    group.calls.clear();
    if (open->calls.calls.empty()) open->calls.calls.swap(group.calls);
    return result;
  }

  // What was kept of a group that is not the last one again.
  nccl::Result Return(OpenGroup* open) {
    nccl::Result result = abi::kSuccess;
    for (Call& call : open->again.Return()) {
      const nccl::Result carried = Carry(std::move(call), open);
      if (carried != abi::kSuccess) result = carried;
    }
    return result;
  }

  nccl::Result Run(const CallGroup& group, SmallCalls* again) {
    if (!Range::Seen()) {
      const auto result = again->RunNew(group, native(), changes_.load(std::memory_order_acquire));
      if (result) return *result;
    }
    std::shared_ptr<Rest> rest;
    const nccl::Result result = RunCalls(group, native(), &rest);
    later_.Keep(rest);
    return result;
  }

  std::atomic<uint64_t> changes_ = 1;
  const Options options_;
  std::shared_mutex mutex_;
  std::map<nccl::Comm, Shared> communicators_;
  Ended ended_;

  // Their parents are watched.
  Parts parts_{[this](const Shared& made, nccl::Comm handle) {
    if (Know(made, handle)) Watcher::Get().AddBeside(made);
  }};

  Later later_{native(), [this](const Shared& made, nccl::Comm comm) { BeginMade(made, comm); }};
};

// Not in a child that was forked, whose copies of locks may be held for ever.
void SayFarewell() {
  if (getpid() == g_process) WaitForReceivers();
}

Options ReadOptions(Mode mode) {
  std::vector<std::string> problems;
  Options options;
  options.dry_run = mode == Mode::kDryRun;
  options.verify = mode == Mode::kVerify;
  options.from = ReadNumber(SettingId::kSendrecvFrom, &problems).value_or(options.from);
  options.policy.eager_limit =
      ReadNumber(SettingId::kSendrecvEager, &problems).value_or(options.policy.eager_limit);
  options.policy.loose = options.policy.eager_limit == 0;
  options.policy.graphs = ReadWord(SettingId::kSendrecvGraphs, &problems) == "1";
  options.policy.fifo = ReadWord(SettingId::kSendrecvPolicy, &problems) == "vccl";
  const auto read = [&](SettingId id, uint64_t* value) {
    *value = ReadNumber(id, &problems).value_or(*value);
  };
  read(SettingId::kSendrecvBuffer, &options.fifo.buffer);
  read(SettingId::kSendrecvSteps, &options.fifo.steps);
  read(SettingId::kSendrecvChannels, &options.fifo.channels);
  read(SettingId::kSendrecvChunk, &options.fifo.chunk);
  options.policy.piece = options.fifo.chunk;
  for (const std::string& problem : problems) Warn(problem);
  return options;
}

}  // namespace

std::unique_ptr<Interceptor> NewInterceptor(Mode mode, const Native& native) {
  auto made = std::make_unique<SendRecv>(ReadOptions(mode), native);
  if (!ReadPath(SettingId::kSendrecvStats).empty()) std::atexit([] { SayCounts(""); });
  g_process = getpid();
  std::atexit(&SayFarewell);
  SayCountsAtSignal();
  return made;
}

}  // namespace nccltune::sendrecv
