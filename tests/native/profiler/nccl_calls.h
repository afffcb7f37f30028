// SPDX-License-Identifier: Apache-2.0
//
// Plays what NCCL 2.27 to 2.31 do with a profiler plugin when a program calls them: which events
// follow from the plugin's mask, their order and their parents.
#pragma once

#include "abi/profiler.h"
#include "standard.h"

namespace nccltune::profiler {

struct ProgramCall {
  const char* function = "AllReduce";
  const char* type = "ncclFloat32";
  size_t count = 0;
  const char* algorithm = "RING";
  const char* protocol = "LL";
  uint8_t channels = 1;
  enum Run { kKernel, kSymmetric, kCopyEngine, kUnreported } run = kKernel;
  bool captured = false;
  int replays = 1;  // of the task; more than one only in a graph

  bool IsPointToPoint() const {
    return std::string(function) == "Send" || std::string(function) == "Recv";
  }
  bool HasKernel() const { return run == kKernel || run == kSymmetric; }
};

inline int nccls_mask = 0;  // one in a process, as in NCCL

// A communicator of NCCL with a plugin.
template <typename Profiler>
class PlayedCommunicator {
 public:
  using Event = typename Profiler::Event;
  static constexpr int kVersion = Profiler::kVersion;

  PlayedCommunicator(const std::string& plugin, const char* name, int ranks, int rank,
                     abi::LogFunction log = nullptr) {
    void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) std::abort();
    const std::string symbol = "ncclProfiler_v" + std::to_string(kVersion);
    table_ = static_cast<const Profiler*>(dlsym(library, symbol.c_str()));
    if (table_ == nullptr) std::abort();
    constexpr uint64_t kId = 0x5eed;
    if constexpr (kVersion == 4) {
      result_ = table_->init(&context_, &nccls_mask, name, kId, 1, ranks, rank, log);
    } else {
      result_ = table_->init(&context_, kId, &nccls_mask, name, 1, ranks, rank, log);
    }
  }
  ~PlayedCommunicator() {
    if (context_ != nullptr) table_->finalize(context_);
  }
  PlayedCommunicator(const PlayedCommunicator&) = delete;
  PlayedCommunicator& operator=(const PlayedCommunicator&) = delete;

  // An event of a proxy thread that another communicator keeps running.
  void PlayLate() {
    table_->finalize(context_);
    // Takes the memory that finalize has freed.
    std::vector<std::string> taken;
    for (size_t i = 0; i < 1000; ++i) taken.emplace_back(24 + i % 48, 'x');
    Start(abi::kProfileProxyOp, nullptr, [](Event*) {});
    context_ = nullptr;
  }

  abi::Result result() const { return result_; }
  void* context() const { return context_; }

  // `run` is what happens on the GPU when the kernel is launched.
  void Play(const ProgramCall& call, const std::function<void()>& run = [] {}) {
    PlayCall(call, [&](void* of_call) {
      PlayLaunch(call, run);
      PlayTasks(call, of_call);
    });
  }

  // Calls of one group, whose kernel is one. NCCL calls the group of the first alone.
  void PlayTogether(const std::vector<ProgramCall>& calls, const std::function<void()>& run) {
    for (const ProgramCall& call : calls) PlayCall(call, [](void*) {});
    PlayLaunch(calls.front(), run);
    for (const ProgramCall& call : calls) PlayTasks(call);
  }

  // NCCL launches the kernel of a call, once also for a graph.
  void PlayLaunch(const ProgramCall& call, const std::function<void()>& run, bool stops = true) {
    if (!call.HasKernel()) return;
    void* launch = nullptr;
    if constexpr (kVersion >= 5) {
      if ((mask_ & abi::kProfileKernelLaunch) != 0) {
        launch = Start(abi::kProfileKernelLaunch, nullptr,
                       [](Event* event) { event->kernel_launch.stream = &nccls_mask; });
      }
    }
    run();
    if (stops) Stop(launch);
  }

  // Then it reports the tasks, which for a graph happens at each replay.
  void PlayTasks(const ProgramCall& call, void* of_call = nullptr) {
    for (int replay = 0; call.HasKernel() && replay < call.replays; ++replay) {
      PlayTask(call, mask_, of_call);
    }
  }

 private:
  template <typename Launch>
  void PlayCall(const ProgramCall& call, const Launch& launch) {
    using namespace abi;
    constexpr uint64_t kBelow =
        kProfileProxyOp | kProfileProxyStep | kProfileKernelChannel | kProfileNetPlugin;
    const bool p2p = call.IsPointToPoint();
    const auto mask = static_cast<uint64_t>(__atomic_load_n(&nccls_mask, __ATOMIC_RELAXED));
    mask_ = mask;
    void* group_call = nullptr;
    void* of_call = nullptr;
    if constexpr (kVersion >= 5) {
      constexpr uint64_t kCopies =
          kProfileCopyEngine | kProfileCopyEngineSync | kProfileCopyEngineBatch;
      if ((mask & ~uint64_t{kProfileProxyControl}) != 0) {
        group_call = Start(kProfileGroupCall, nullptr, [](Event*) {});
        if (group_call != nullptr) table_->record_event_state(group_call, 23, nullptr);
      }
      const uint64_t calls = p2p ? kProfilePointToPointCall | kProfilePointToPoint
                                 : kProfileCollectiveCall | kProfileCollective | kCopies;
      if ((mask & (calls | kBelow)) != 0) {
        of_call = Start(p2p ? kProfilePointToPointCall : kProfileCollectiveCall, group_call,
                        [&call, p2p](Event* event) {
                          const auto fill = [&call](auto* out) {
                            out->function = call.function;
                            out->count = call.count;
                            out->type = call.type;
                            out->captured = call.captured;
                          };
                          p2p ? fill(&event->point_to_point_call) : fill(&event->collective_call);
                        });
        Stop(of_call);
      }
      if constexpr (kVersion >= 6) {
        if (call.run == ProgramCall::kCopyEngine && (mask & kCopies) != 0) {
          Stop(Start(kProfileCopyEngine, of_call, [&call](Event* event) {
            event->copy_engine.function = call.function;
            event->copy_engine.type = call.type;
            event->copy_engine.count = call.count;
          }));
        }
      }
    }
    launch(of_call);
    Stop(group_call);
  }

  void PlayTask(const ProgramCall& call, uint64_t mask, void* of_call) {
    using namespace abi;
    constexpr uint64_t kBelow =
        kProfileProxyOp | kProfileProxyStep | kProfileKernelChannel | kProfileNetPlugin;
    const bool p2p = call.IsPointToPoint();
    void* group = nullptr;
    if ((mask & (kProfileGroup | kProfileCollective | kProfilePointToPoint | kBelow)) != 0) {
      group = Start(kProfileGroup, nullptr, [](Event*) {});
    }
    void* task = nullptr;
    const uint64_t type = p2p ? kProfilePointToPoint : kProfileCollective;
    if ((mask & (type | kBelow)) != 0 && (kVersion > 4 || group != nullptr)) {
      task = Start(type, kVersion == 4 ? group : of_call, [&](Event* event) {
        if (p2p) {
          Fill(call, &event->point_to_point);
          if constexpr (kVersion >= 5) event->point_to_point.parent_group = group;
        } else {
          FillCollective(call, group, event);
        }
      });
    }
    if ((mask & kProfileProxyOp) != 0) Stop(Start(kProfileProxyOp, task, [](Event*) {}));
    Stop(task);
    Stop(group);
  }

  template <typename Task>
  static void Fill(const ProgramCall& call, Task* task) {
    task->function = call.function;
    task->count = call.count;
    task->type = call.type;
    task->channels = call.run == ProgramCall::kSymmetric ? uint8_t{0} : call.channels;
  }

  template <typename Task>
  static void FillKernel(const ProgramCall& call, Task* task) {
    Fill(call, task);
    task->algorithm = call.algorithm;
    task->protocol = call.protocol;
    if (std::string(call.function) == "AllGather" || std::string(call.function) == "Broadcast") {
      task->count *= 4;  // NCCL counts bytes here; the tests use types of 4 bytes
      task->type = "ncclInt8";
    }
  }

  static void FillCollective(const ProgramCall& call, void* group, Event* event) {
    FillKernel(call, &event->collective);
    if constexpr (kVersion >= 5) event->collective.parent_group = group;
    if constexpr (kVersion >= 7) {
      event->collective.symmetric = call.run == ProgramCall::kSymmetric;
      event->collective.variant = event->collective.symmetric ? "AGxLL_R" : nullptr;
    }
  }

  template <typename Fill>
  void* Start(uint64_t type, void* parent, const Fill& fill) {
    // What NCCL's own struct has after the members that we declare.
    struct {
      Event event;
      std::array<char, 256> rest;
    } memory{};
    memory.event.type = static_cast<decltype(memory.event.type)>(type);
    memory.event.parent = parent;
    memory.event.rank = 3;
    fill(&memory.event);
    void* handle = nullptr;
    table_->start_event(context_, &handle, &memory.event);
    return handle;
  }

  void Stop(void* handle) {
    if (handle != nullptr) table_->stop_event(handle);
  }

  const Profiler* table_ = nullptr;
  void* context_ = nullptr;
  abi::Result result_ = abi::kSuccess;
  uint64_t mask_ = 0;  // when the program made the last call
};

}  // namespace nccltune::profiler
