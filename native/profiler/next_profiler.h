// SPDX-License-Identifier: Apache-2.0
//
// Another profiler plugin that gets all events, too, because NCCL loads only one.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi/profiler.h"
#include "common/log.h"

namespace nccltune::profiler {

inline constexpr int kOldestVersion = 4;
inline constexpr int kNewestVersion = 7;

// The interface of the other plugin, as one version of ours uses it: its newest one that is not
// newer than ours. Interfaces v5 to v7 differ only in members at the ends of events and in types of
// events, so that an event of a newer one can be passed to an older one. v4 also has other
// arguments of init and other parents.
class NextProfiler {
 public:
  // Loads the plugin that NCCLTUNE_RECORD_NEXT names, once in a process; it stays loaded. Returns
  // the interface for ours of `version`, never destroyed; null if the variable is not set or the
  // plugin cannot be used, which is logged.
  static NextProfiler* ForVersion(int version, const Log& log);

  struct InitArguments {
    uint64_t communicator_id;
    int* mask;  // NCCL's
    const char* communicator_name;
    int nodes;
    int ranks;
    int rank;
    abi::LogFunction log;
  };
  // Sets *context. Returns whether the plugin has accepted; the first refusal is logged. `own` are
  // the events that the recorder needs.
  bool Init(void** context, const InitArguments& arguments, uint64_t own, const Log& log);

  struct PassedEvent {
    uint64_t type;
    void* event;     // as NCCL passed it
    bool has_group;  // a collective or a send or receive, whose parent in v4 is this group:
    void* group;     // null: none
  };
  // Passes an event on if the plugin would get it without the recorder.
  void Start(void* context, void** handle, const PassedEvent& passed, uint64_t own) const;
  abi::Result Stop(void* handle) const { return table_->stop_event(handle); }
  abi::Result Record(void* handle, int state, void* arguments) const {
    return table_->record_event_state(handle, state, arguments);
  }
  abi::Result Finalize(void* context) const { return table_->finalize(context); }

  // Makes NCCL's mask follow the plugin's, which it may change at any time. Otherwise leaves it as
  // NCCL, or an operator, has set it.
  void FollowMask(int* mask, uint64_t own) {
    const int theirs = __atomic_load_n(&mask_, __ATOMIC_RELAXED);
    if (theirs != written_) WriteMask(mask, own, theirs);
  }

 private:
  NextProfiler(int version, const void* table)
      : version_(version), table_(static_cast<const abi::Profiler<5>*>(table)) {}

  void WriteMask(int* mask, uint64_t own, int theirs);

  int version_;
  // For v4 too, whose functions other than init have the same positions and arguments.
  const abi::Profiler<5>* table_;
  int mask_ = 0;                  // the plugin's
  std::atomic<int> written_ = 0;  // the plugin's mask of which NCCL's was made last
  std::atomic<bool> has_accepted_ = false;
  std::atomic<bool> has_refused_ = false;
};

}  // namespace nccltune::profiler
