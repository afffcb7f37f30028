// SPDX-License-Identifier: Apache-2.0
#include "profiler/next_profiler.h"

#include <array>
#include <cstring>
#include <mutex>
#include <string>

#include "abi/profiler.h"
#include "common/settings.h"
#include "common/shared_library.h"
#include "common/text.h"

namespace nccltune::profiler {
namespace {

constexpr uint64_t kProxyEvents = abi::kProfileProxyOp | abi::kProfileProxyStep |
                                  abi::kProfileKernelChannel | abi::kProfileNetPlugin;
constexpr uint64_t kCopyEngineEvents =
    abi::kProfileCopyEngine | abi::kProfileCopyEngineSync | abi::kProfileCopyEngineBatch;
constexpr uint64_t kTaskEvents = abi::kProfileCollective | abi::kProfilePointToPoint | kProxyEvents;

// Returns the bits of a mask of which any makes NCCL 2.27 to 2.31 report an event of this type.
// Only types that the recorder's own mask can cause matter.
uint64_t CausesOf(uint64_t type) {
  switch (type) {
    case abi::kProfileGroup:
      return kTaskEvents | abi::kProfileGroup;
    case abi::kProfileCollective:
      return abi::kProfileCollective | kProxyEvents;
    case abi::kProfilePointToPoint:
      return abi::kProfilePointToPoint | kProxyEvents;
    case abi::kProfileGroupCall:
      return ~uint64_t{abi::kProfileProxyControl};
    case abi::kProfileCollectiveCall:
      return abi::kProfileCollectiveCall | abi::kProfileCollective | kProxyEvents |
             kCopyEngineEvents;
    case abi::kProfilePointToPointCall:
      return abi::kProfilePointToPointCall | abi::kProfilePointToPoint | kProxyEvents;
    case abi::kProfileCopyEngine:
      return kCopyEngineEvents;
    default:
      return ~uint64_t{0};
  }
}

// Returns the first type of an event that a version does not know.
uint64_t EndOfTypes(int version) {
  if (version == 4) return abi::kProfileGroupCall;
  if (version == 5) return abi::kProfileCopyEngine;
  return version == 6 ? uint64_t{1} << 15U : uint64_t{1} << 63U;
}

// Opens a plugin as NCCL does: by path or by name.
SharedLibrary OpenPlugin(const std::string& name, std::string* error) {
  SharedLibrary library = SharedLibrary::Open(name, error);
  if (library || name.find('/') != std::string::npos) return library;
  std::string second;
  return SharedLibrary::Open("libnccl-profiler-" + name + ".so", &second);
}

struct Chain {
  std::mutex mutex;
  bool is_open = false;
  std::array<NextProfiler*, kNewestVersion + 1> by_version{};
};
constinit Chain chain;

void* TableOf(const SharedLibrary& library, int version) {
  return library.FindAddress(("ncclProfiler_v" + std::to_string(version)).c_str());
}

}  // namespace

NextProfiler* NextProfiler::ForVersion(int version, const Log& log) {
  const std::string name = ReadPath(SettingId::kRecordNext);
  if (name.empty()) return nullptr;
  const std::scoped_lock lock(chain.mutex);
  if (!chain.is_open) {
    chain.is_open = true;
    const std::string setting = "NCCLTUNE_RECORD_NEXT=" + Printable(name, 300) + ": ";
    std::string error;
    SharedLibrary library = OpenPlugin(name, &error);
    const bool is_own = library && library.Path() == SharedLibrary::Holding(&chain).Path() &&
                        !library.Path().empty();
    void* table = nullptr;
    int found = 0;
    for (int ours = kOldestVersion; library && !is_own && ours <= kNewestVersion; ++ours) {
      if (void* const newer = TableOf(library, ours)) {
        table = newer;
        found = ours;
      }
      if (table != nullptr) {
        chain.by_version[static_cast<size_t>(ours)] = new NextProfiler(found, table);
      }
    }
    if (!library) {
      log.Warn(setting + error + ": it gets no events");
    } else if (is_own) {
      log.Warn(setting + "is the recorder itself: name the other plugin");
    } else if (found == 0) {
      log.Warn(setting + "has no profiler interface v4 to v7: it gets no events");
    } else {
      log.Info(setting + "gets all events, by interface v" + std::to_string(found) + " at most");
      library.Keep();
    }
  }
  return chain.by_version[static_cast<size_t>(version)];
}

bool NextProfiler::Init(void** context, const InitArguments& arguments, uint64_t own,
                        const Log& log) {
  // Without events of ours, the plugin has NCCL's own mask, as if it was alone.
  int* const mask = own == 0 ? arguments.mask : &mask_;
  const int before = has_accepted_ ? __atomic_load_n(mask, __ATOMIC_RELAXED) : 0;
  abi::Result result = abi::kSuccess;
  if (version_ == 4) {
    const auto* const table = reinterpret_cast<const abi::Profiler<4>*>(table_);
    result = table->init(context, mask, arguments.communicator_name, arguments.communicator_id,
                         arguments.nodes, arguments.ranks, arguments.rank, arguments.log);
  } else {
    result = table_->init(context, arguments.communicator_id, mask, arguments.communicator_name,
                          arguments.nodes, arguments.ranks, arguments.rank, arguments.log);
  }
  if (result == abi::kSuccess) {
    has_accepted_ = true;
  } else {
    // What it asked for goes nowhere; communicators that it has accepted keep their events.
    __atomic_store_n(mask, before, __ATOMIC_RELAXED);
    if (!has_refused_.exchange(true)) {
      log.Warn("the plugin of NCCLTUNE_RECORD_NEXT refused a communicator (result " +
               std::to_string(result) + "): it gets no events of such communicators");
    }
  }
  if (own != 0) WriteMask(arguments.mask, own, __atomic_load_n(&mask_, __ATOMIC_RELAXED));
  return result == abi::kSuccess;
}

void NextProfiler::WriteMask(int* mask, uint64_t own, int theirs) {
  __atomic_store_n(mask, static_cast<int>(own) | theirs, __ATOMIC_RELAXED);
  written_ = theirs;
}

void NextProfiler::Start(void* context, void** handle, const PassedEvent& passed,
                         uint64_t own) const {
  if (passed.type >= EndOfTypes(version_)) return;
  const auto mask = static_cast<uint64_t>(__atomic_load_n(&mask_, __ATOMIC_RELAXED));
  if (own != 0 && (CausesOf(passed.type) & mask) == 0) return;
  if (version_ != 4 || !passed.has_group) {
    table_->start_event(context, handle, static_cast<abi::ProfilerEvent<5>*>(passed.event));
    return;
  }
  if (passed.group == nullptr) return;  // NCCL 2.27 does not report it then
  abi::ProfilerEvent<4> event;
  std::memcpy(&event, passed.event, sizeof(event));
  event.parent = passed.group;
  reinterpret_cast<const abi::Profiler<4>*>(table_)->start_event(context, handle, &event);
}

}  // namespace nccltune::profiler
