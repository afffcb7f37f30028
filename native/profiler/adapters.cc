// SPDX-License-Identifier: Apache-2.0
//
// The function tables that NCCL looks up by symbol name, one for each version of the profiler
// interface. All functions return success and leave NCCL's handles null: a failure of init makes
// NCCL close the plugin, and a handle only costs further calls. v1 to v3 (NCCL 2.23 to 2.26) are
// missing on purpose: their init has no number of ranks, without which a size means nothing.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "abi/profiler.h"
#include "common/contain.h"
#include "common/export.h"
#include "common/log.h"
#include "common/shared_library.h"
#include "profiler/histogram.h"
#include "profiler/launch_timer.h"
#include "profiler/next_profiler.h"
#include "profiler/recorder.h"

namespace nccltune::profiler {
namespace {

// What NCCL holds for a communicator.
struct Context {
  Recorder* recorder = nullptr;    // null: nothing is recorded
  Histogram* histogram = nullptr;  // of the recorder
  NextProfiler* next = nullptr;    // null: no other plugin
  void* next_context = nullptr;
  int* mask = nullptr;
  bool may_get_late_events = false;
  Context* kept_before = nullptr;
  std::atomic<int> until_clock = 0;        // events until the clock is read again
  std::unique_ptr<LaunchTimer> timer;      // null: no launch is timed
  std::atomic<bool> is_capturing = false;  // the last call was captured into a CUDA graph
  KnownEvents known;
};

// NCCL's proxy thread, which split communicators share, may report its events after finalize. The
// recorder asks for none of them, but another plugin may.
constinit std::atomic<Context*> kept = nullptr;

// The events from which calls and tasks are counted. launch_timer.h has why times are not those of
// NCCL's own kernel events (kProfileKernelChannel).
template <int version>
constexpr uint64_t kOwnEvents = abi::kProfileCollective | abi::kProfilePointToPoint |
                                (version >= 6 ? abi::kProfileCopyEngine : 0);

template <int version>
uint64_t OwnEvents(const Context& context) {
  if (context.recorder == nullptr) return 0;
  const bool is_timing = version >= 5 && context.recorder->is_timing();
  return kOwnEvents<version> | (is_timing ? abi::kProfileKernelLaunch : 0);
}

// The clock is read once in this many counted events, because that costs more than to count one.
constexpr int kEventsPerClock = 16;

// v4: NCCL reports no tasks of a group whose handle is null.
char group_without_handle = 0;

int CurrentDevice() {
  using GetDevice = int(int* device);  // returns 0 on success
  const SharedLibrary cuda = SharedLibrary::Loaded("libcuda.so.1");
  auto* const get_device = cuda.Find<GetDevice>("cuCtxGetDevice");
  int device = -1;
  return get_device != nullptr && get_device(&device) == 0 ? device : -1;
}

// The other plugin of each version of ours: NCCL passes no context to stop_event.
std::array<std::atomic<NextProfiler*>, kNewestVersion + 1> next_of_version;

template <int version>
void Begin(void** context, const NextProfiler::InitArguments& arguments) {
  const Log log(arguments.log, abi::kSubsysInit, kLogPrefix);
  auto made = std::make_unique<Context>();
  made->mask = arguments.mask;
  made->recorder = Recorder::OfProcess(log);
  made->next = NextProfiler::ForVersion(version, log);
  const uint64_t own = OwnEvents<version>(*made);
  if (made->next != nullptr) {
    next_of_version[version] = made->next;
    made->may_get_late_events = true;
    if (!made->next->Init(&made->next_context, arguments, own, log)) made->next = nullptr;
  } else {
    // All communicators have this mask: never, not even for a moment, another one than they need.
    __atomic_store_n(arguments.mask, static_cast<int>(own), __ATOMIC_RELAXED);
  }
  if (made->recorder != nullptr) {
    const char* const name = arguments.communicator_name;
    made->histogram = made->recorder->Begin({.name = name == nullptr ? "" : name,
                                             .id = arguments.communicator_id,
                                             .nodes = arguments.nodes,
                                             .ranks = arguments.ranks,
                                             .rank = arguments.rank,
                                             .device = CurrentDevice(),
                                             .interface_version = version});
    if constexpr (version >= 5) {
      constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // ranks time other launches each
      made->timer = made->recorder->MakeTimer(arguments.communicator_id +
                                              kSpread * static_cast<uint64_t>(arguments.rank));
    }
  } else if (made->next == nullptr) {
    return;  // StartEvent and Finalize ignore a null context
  }
  *context = made.release();
}

template <int version>
abi::Result BeginContained(void** context, const NextProfiler::InitArguments& arguments) {
  *context = nullptr;
  Contain([&] { Begin<version>(context, arguments); });
  return abi::kSuccess;
}

// For v4, and since v5. The type of the table's member selects the overload.
template <int version>
abi::Result Init(void** context, int* mask, const char* name, uint64_t id, int nodes, int ranks,
                 int rank, abi::LogFunction log) {
  return BeginContained<version>(context, {id, mask, name, nodes, ranks, rank, log});
}
template <int version>
abi::Result Init(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks,
                 int rank, abi::LogFunction log) {
  return BeginContained<version>(context, {id, mask, name, nodes, ranks, rank, log});
}

template <typename Call>
Event EventOf(const Call& call, uint8_t flags) {
  return {.count = call.count, .function = call.function, .type = call.type, .flags = flags};
}

template <typename Collective>
Event EventOf(const Collective& task) {
  Event event = EventOf(task, kTask);
  event.channels = task.channels;
  // No channels: a symmetric kernel up to NCCL 2.30, of which the algorithm and the protocol were
  // not chosen.
  if (task.channels != 0) {
    event.algorithm = task.algorithm;
    event.protocol = task.protocol;
  }
  return event;
}

Event EventOf(const abi::ProfilerCollectiveV7& task) {
  Event event = EventOf(static_cast<const abi::ProfilerCollectiveV5&>(task));
  if (task.symmetric) {
    event.flags |= kSymmetric;
    event.algorithm = task.variant;
  }
  return event;
}

// Returns the event as it is counted; without a function if it is not.
template <int version>
Event EventOf(uint64_t type, const abi::ProfilerEvent<version>& passed) {
  if (type == abi::kProfileCollective) return EventOf(passed.collective);
  if (type == abi::kProfilePointToPoint) {
    Event event = EventOf(passed.point_to_point, kTask);
    event.channels = passed.point_to_point.channels;
    return event;
  }
  if constexpr (version >= 5) {
    const auto of_call = [](const auto& call) {
      return EventOf(call, call.captured ? kCaptured : uint8_t{0});
    };
    if (type == abi::kProfileCollectiveCall) return of_call(passed.collective_call);
    if (type == abi::kProfilePointToPointCall) return of_call(passed.point_to_point_call);
  }
  if constexpr (version >= 6) {
    if (type == abi::kProfileCopyEngine) return EventOf(passed.copy_engine, kTask | kCopyEngine);
  }
  return {};
}

// Not inline: nearly all events are known, and their code stays short.
__attribute__((noinline)) Slot* CountUnknown(Context* context, const Event& event) {
  WordTable& table = context->recorder->words();
  Call call = {.flags = event.flags,
               .function = table.NumberOf(event.function),
               .type = table.NumberOf(event.type),
               .algorithm = table.NumberOf(event.algorithm),
               .protocol = table.NumberOf(event.protocol),
               .channels = event.channels};
  const uint64_t type_bytes = table.TypeBytes(call.type);
  if (type_bytes == 0) {
    context->histogram->Lose(1, 0);  // a type of a newer NCCL
    return nullptr;
  }
  call.bytes = event.count * type_bytes;
  Slot* const row = context->histogram->Add(call);
  if (row != nullptr) context->known.Keep(event, row);
  return row;
}

void Time(Context* context, const Event& event, Slot* row) {
  if ((event.flags & kTask) == 0) {
    context->timer->EndTasks();
    context->is_capturing.store((event.flags & kCaptured) != 0, std::memory_order_relaxed);
  } else if ((event.flags & kCopyEngine) == 0) {
    context->timer->AddTask(row);
  }
}

void Count(Context* context, const Event& event) {
  Slot* row = context->known.Find(event);
  if (row != nullptr) {
    row->count.fetch_add(1, std::memory_order_relaxed);
  } else {
    row = CountUnknown(context, event);
  }
  if (context->timer != nullptr) Time(context, event, row);
  // Threads may overwrite each other's number: the clock is then read a little earlier or later.
  const int left = context->until_clock.load(std::memory_order_relaxed);
  context->until_clock.store(left > 0 ? left - 1 : kEventsPerClock - 1, std::memory_order_relaxed);
  if (left <= 0) context->recorder->CheckTime();
}

template <int version>
abi::Result StartEvent(void* context_pointer, void** handle, abi::ProfilerEvent<version>* event) {
  *handle = nullptr;
  auto* const context = static_cast<Context*>(context_pointer);
  if (context == nullptr) return abi::kSuccess;
  const uint64_t type = event->type;
  if constexpr (version >= 5) {
    if (type == abi::kProfileKernelLaunch && context->timer != nullptr) {
      if (!context->is_capturing.load(std::memory_order_relaxed)) {
        *handle = context->timer->Start(event->kernel_launch.stream);
      }
      return abi::kSuccess;
    }
  }
  if (context->recorder != nullptr) {
    const Event counted = EventOf(type, *event);
    if (counted.function != nullptr) Contain([&] { Count(context, counted); });
  }
  if (context->next != nullptr) {
    const uint64_t own = OwnEvents<version>(*context);
    if (own != 0) context->next->FollowMask(context->mask, own);
    NextProfiler::PassedEvent passed = {type, event, false, nullptr};
    passed.has_group = type == abi::kProfileCollective || type == abi::kProfilePointToPoint;
    if constexpr (version == 4) {
      if (event->parent != &group_without_handle) passed.group = event->parent;
    } else if (type == abi::kProfileCollective) {
      passed.group = event->collective.parent_group;
    } else if (type == abi::kProfilePointToPoint) {
      passed.group = event->point_to_point.parent_group;
    }
    context->next->Start(context->next_context, handle, passed, own);
  }
  if (version == 4 && context->recorder != nullptr && type == abi::kProfileGroup &&
      *handle == nullptr) {
    *handle = &group_without_handle;
  }
  return abi::kSuccess;
}

template <int version>
abi::Result StopEvent(void* handle) {
  const NextProfiler* const next = next_of_version[version].load(std::memory_order_relaxed);
  if (handle == nullptr || handle == &group_without_handle) return abi::kSuccess;
  if (next != nullptr) return next->Stop(handle);
  LaunchTimer::Stop(handle);  // no other event has a handle then
  return abi::kSuccess;
}

template <int version>
abi::Result RecordEventState(void* handle, int state, void* arguments) {
  const NextProfiler* const next = next_of_version[version].load(std::memory_order_relaxed);
  if (next == nullptr || handle == nullptr || handle == &group_without_handle) return abi::kSuccess;
  return next->Record(handle, state, arguments);
}

abi::Result Finalize(void* context_pointer) {
  std::unique_ptr<Context> context(static_cast<Context*>(context_pointer));
  if (context == nullptr) return abi::kSuccess;
  if (context->next != nullptr && context->next_context != nullptr) {
    context->next->Finalize(context->next_context);
  }
  context->timer.reset();  // adds what it knows to the histogram
  if (context->recorder != nullptr) {
    Contain([&] { context->recorder->End(context->histogram); });
  }
  if (context->may_get_late_events) {
    Context* const late = context.release();
    late->kept_before = kept;
    while (!kept.compare_exchange_weak(late->kept_before, late)) {
    }
  }
  return abi::kSuccess;
}

template <int version>
constexpr abi::Profiler<version> Table() noexcept {
  return {.name = "nccltune",
          .init = Init<version>,
          .start_event = StartEvent<version>,
          .stop_event = StopEvent<version>,
          .record_event_state = RecordEventState<version>,
          .finalize = Finalize};
}

}  // namespace

extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<4> ncclProfiler_v4 = Table<4>();
extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<5> ncclProfiler_v5 = Table<5>();
extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<6> ncclProfiler_v6 = Table<6>();
extern "C" NCCLTUNE_EXPORT constinit const abi::Profiler<7> ncclProfiler_v7 = Table<7>();

}  // namespace nccltune::profiler
