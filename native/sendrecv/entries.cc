// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/entries.h"

#include <array>
#include <atomic>
#include <string>

namespace nccltune::sendrecv {
namespace {

struct Installed {
  Interceptor* interceptor;
  const RealNccl* nccl;
};

constinit std::atomic<const Installed*> g_installed = nullptr;

// This thread is in a call that was intercepted. NCCL calls its own functions by their public
// names, and so do others that stand behind us.
thread_local bool t_inside = false;

class Inside {
 public:
  Inside() { t_inside = true; }
  ~Inside() { t_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// One for each name: `profiled` is the second.
template <auto method, bool profiled>
struct Entry;

template <typename... Arguments, nccl::Result (Interceptor::*method)(Arguments...), bool profiled>
struct Entry<method, profiled> {
  static inline void* original = nullptr;

  static nccl::Result Call(Arguments... arguments) noexcept {
    // NCCL's own threads have not come through here: known by where they call from.
    const Installed& installed = *g_installed.load(std::memory_order_acquire);
    if (t_inside ||
        installed.nccl->Holds(__builtin_extract_return_addr(__builtin_return_address(0)))) {
      return reinterpret_cast<nccl::Result (*)(Arguments...)>(original)(arguments...);
    }
    const Inside inside;
    try {
      return (installed.interceptor->*method)(arguments...);
    } catch (...) {
      return abi::kInternalError;
    }
  }
};

#define ENTRIES(name)                                                                         \
  Intercepted{"nccl" #name, reinterpret_cast<void*>(&Entry<&Interceptor::name, false>::Call), \
              &Entry<&Interceptor::name, false>::original},                                   \
      Intercepted {                                                                           \
    "pnccl" #name, reinterpret_cast<void*>(&Entry<&Interceptor::name, true>::Call),           \
        &Entry<&Interceptor::name, true>::original                                            \
  }

const std::array kIntercepted = {
    ENTRIES(CommInitRank),
    ENTRIES(CommInitRankConfig),
    ENTRIES(CommInitRankScalable),
    ENTRIES(CommInitAll),
    ENTRIES(CommSplit),
    ENTRIES(CommShrink),
    ENTRIES(CommGrow),
    ENTRIES(CommFinalize),
    ENTRIES(CommDestroy),
    ENTRIES(CommAbort),
    ENTRIES(CommRevoke),
    ENTRIES(CommGetAsyncError),
    ENTRIES(GroupStart),
    ENTRIES(GroupEnd),
    ENTRIES(GroupSimulateEnd),
    ENTRIES(Send),
    ENTRIES(Recv),
    ENTRIES(MemFree),
    ENTRIES(CommRegister),
    ENTRIES(CommDeregister),
};

#undef ENTRIES

template <typename Function>
void Find(const RealNccl& nccl, const char* symbol, Function** function) {
  *function = reinterpret_cast<Function*>(nccl.Find(symbol));
}

}  // namespace

std::span<const Intercepted> AllIntercepted() { return kIntercepted; }

void Bind(const RealNccl& nccl, Native* native) {
#define BIND(name) Find(nccl, "nccl" #name, &native->name)
  BIND(GetVersion);
  BIND(GetUniqueId);
  BIND(GetErrorString);
  BIND(GetLastError);
  BIND(CommCount);
  BIND(CommUserRank);
  BIND(CommCuDevice);
  BIND(CommInitRank);
  BIND(CommInitRankConfig);
  BIND(CommInitRankScalable);
  BIND(CommInitAll);
  BIND(CommSplit);
  BIND(CommShrink);
  BIND(CommGrow);
  BIND(CommFinalize);
  BIND(CommDestroy);
  BIND(CommAbort);
  BIND(CommRevoke);
  BIND(CommGetAsyncError);
  BIND(GroupStart);
  BIND(GroupEnd);
  BIND(GroupSimulateEnd);
  BIND(Send);
  BIND(Recv);
  BIND(MemFree);
  BIND(CommRegister);
  BIND(CommDeregister);
#undef BIND
}

void Install(Interceptor* interceptor, const RealNccl* nccl) {
  g_installed.store(new Installed{interceptor, nccl}, std::memory_order_release);
}

void TellOfWork() noexcept {
  if (!t_inside) g_installed.load(std::memory_order_acquire)->interceptor->Work();
}

}  // namespace nccltune::sendrecv
