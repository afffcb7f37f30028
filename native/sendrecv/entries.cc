// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/entries.h"

#include <array>
#include <atomic>
#include <string>
#include <type_traits>

namespace nccltune::sendrecv {
namespace {

struct Installed {
  std::atomic<Interceptor*> interceptor = nullptr;  // the last that is written
  CodeRange nccl;
};

// Written before the first call of any entry.
constinit Installed g_installed;

// Nobody else is in its line of the cache. Leak sanitizers take dynamic thread-local memory that
// begins 16 bytes behind a page for another glibc's, and fall.
alignas(64) constinit thread_local Thread t_thread;

// This thread is in a call that was intercepted. NCCL calls its own functions by their public
// names, and so do others that stand behind us.
class Inside {
 public:
  explicit Inside(Thread* thread) : thread_(*thread) { thread_.inside = true; }
  ~Inside() { thread_.inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Thread& thread_;
};

// NCCL's function that a method stands for.
template <typename Method>
struct Signature;
template <typename... Arguments>
struct Signature<nccl::Result (Interceptor::*)(Arguments...)> {
  using Type = nccl::Result(Arguments...);
};
template <typename... Arguments>
struct Signature<nccl::Result (Interceptor::*)(Thread&, Arguments...)> {
  using Type = nccl::Result(Arguments...);
};

// One for each name: `profiled` is the second.
template <auto method, bool profiled, typename Type = typename Signature<decltype(method)>::Type>
struct Entry;

template <auto method, bool profiled, typename... Arguments>
struct Entry<method, profiled, nccl::Result(Arguments...)> {
  static inline void* original = nullptr;

  [[gnu::hot]] static nccl::Result Call(Arguments... arguments) noexcept {
    Thread* where = &t_thread;
    __asm__("" : "+r"(where));  // or it would be looked for once more at the end
    Thread& thread = *where;
    // Whoever jumps here sees what was written before it, by the trampoline, of which the thread
    // sanitizer knows nothing. This costs no instruction on x86-64.
    Interceptor& interceptor = *g_installed.interceptor.load(std::memory_order_acquire);
    // NCCL's own threads have not come through here: known by where they call from.
    if (thread.inside ||
        g_installed.nccl.Holds(__builtin_extract_return_addr(__builtin_return_address(0)))) {
      return reinterpret_cast<nccl::Result (*)(Arguments...)>(original)(arguments...);
    }
    const Inside inside(&thread);
    try {
      if constexpr (std::is_invocable_v<decltype(method), Interceptor&, Thread&, Arguments...>) {
        return (interceptor.*method)(thread, arguments...);
      } else {
        return (interceptor.*method)(arguments...);
      }
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

void Install(Interceptor* interceptor, const CodeRange& nccl) {
  g_installed.nccl = nccl;
  g_installed.interceptor.store(interceptor, std::memory_order_release);
}

Thread& ThisThread() { return t_thread; }

void TellOfWork() noexcept {
  if (!t_thread.inside) g_installed.interceptor.load(std::memory_order_acquire)->Work();
}

}  // namespace nccltune::sendrecv
