// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/entries.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

namespace nccltune::sendrecv {
namespace {

struct Installed {
  std::atomic<Interceptor*> interceptor = nullptr;  // written after `nccl`
  CodeRange nccl;
};

// Install writes this before the first call of any entry.
constinit Installed g_installed;

// Aligned, so that it has a cache line of its own. Besides, leak sanitizers crash on thread-local
// memory that begins 16 bytes after a page boundary, because they assume the layout of another
// glibc.
alignas(64) constinit thread_local ThreadState t_thread;

// Marks this thread as being in an intercepted call, so that inner calls are not intercepted. NCCL
// calls its own functions by their public names, and so do other interposers that are loaded behind
// this library.
class InterceptedScope {
 public:
  explicit InterceptedScope(ThreadState* thread) : thread_(*thread) { thread_.inside = true; }
  ~InterceptedScope() { thread_.inside = false; }
  InterceptedScope(const InterceptedScope&) = delete;
  InterceptedScope& operator=(const InterceptedScope&) = delete;

 private:
  ThreadState& thread_;
};

// Returns whether NCCL itself makes the call. Calls from NCCL's own threads are recognised by the
// return address.
inline bool IsNcclsOwn(const ThreadState& thread, const void* caller) {
  return thread.inside || g_installed.nccl.Contains(caller);
}

// Returns `result`. If `result` is an error, first reports the error to the interceptor.
inline nccl::Result ReportFailure(ThreadState& thread, Interceptor& interceptor,
                                  nccl::Result result) {
  if (result != abi::kSuccess && result != abi::kInProgress) interceptor.MayHaveRefused(thread);
  return result;
}

// The type of the NCCL function that corresponds to a method of Interceptor.
template <typename Method>
struct Signature;
template <typename... Arguments>
struct Signature<nccl::Result (Interceptor::*)(Arguments...)> {
  using Type = nccl::Result(Arguments...);
};
template <typename... Arguments>
struct Signature<nccl::Result (Interceptor::*)(ThreadState&, Arguments...)> {
  using Type = nccl::Result(Arguments...);
};

// The entry for one of the two names of a function, such as ncclSend and pncclSend. `profiled`
// selects the name with the prefix pnccl.
template <auto method, bool profiled, typename Type = typename Signature<decltype(method)>::Type>
struct Entry;

template <auto method, bool profiled, typename... Arguments>
struct Entry<method, profiled, nccl::Result(Arguments...)> {
  static inline void* original = nullptr;

  [[gnu::hot]] static nccl::Result Call(Arguments... arguments) noexcept {
    ThreadState* where = &t_thread;
    // Keep the address in a register. Otherwise the compiler looks it up again at the end.
    __asm__("" : "+r"(where));
    ThreadState& thread = *where;
    // The trampoline has already ordered this load, but the thread sanitizer does not know that. On
    // x86-64 an acquire load costs no extra instruction.
    Interceptor& interceptor = *g_installed.interceptor.load(std::memory_order_acquire);
    if (IsNcclsOwn(thread, __builtin_extract_return_addr(__builtin_return_address(0)))) {
      return reinterpret_cast<nccl::Result (*)(Arguments...)>(original)(arguments...);
    }
    const InterceptedScope inside(&thread);
    try {
      if constexpr (std::is_invocable_v<decltype(method), Interceptor&, ThreadState&,
                                        Arguments...>) {
        return (interceptor.*method)(thread, arguments...);
      } else {
        return ReportFailure(thread, interceptor, (interceptor.*method)(arguments...));
      }
    } catch (...) {
      return abi::kInternalError;
    }
  }
};

// Functions that are passed to NCCL unchanged; the library only checks whether they fail. Each line
// is X(name, parameter types...).
#define OBSERVED_CALLS(X)                                                                  \
  X(CommGrow, nccl::Comm, int, const nccl::UniqueId*, int, nccl::Comm*, nccl::CommConfig*) \
  X(CommFinalize, nccl::Comm)                                                              \
  X(CommSuspend, nccl::Comm, int)                                                          \
  X(CommResume, nccl::Comm)                                                                \
  X(CommWindowRegister, nccl::Comm, void*, size_t, nccl::Window*, int)                     \
  X(CommWindowDeregister, nccl::Comm, nccl::Window)

// Functions that have no method of their own in Interceptor.
enum class GenericFunction : uint8_t {
#define FUNCTION(name, ...) k##name,
  NCCLTUNE_ENQUEUE_CALLS(FUNCTION) OBSERVED_CALLS(FUNCTION)
#undef FUNCTION
};

// The entry for one of the two names of a GenericFunction. If `enqueues` is set, the entry passes
// the call to Interceptor::Enqueue, otherwise to NCCL.
template <GenericFunction function, bool enqueues, bool profiled, typename... Arguments>
struct GenericEntry {
  static inline void* original = nullptr;

  static nccl::Result Call(Arguments... arguments) noexcept {
    const auto native = reinterpret_cast<nccl::Result (*)(Arguments...)>(original);
    ThreadState& thread = t_thread;
    if (IsNcclsOwn(thread, __builtin_extract_return_addr(__builtin_return_address(0)))) {
      return native(arguments...);
    }
    const InterceptedScope inside(&thread);
    Interceptor& interceptor = *g_installed.interceptor.load(std::memory_order_acquire);
    try {
      if constexpr (enqueues) {
        return interceptor.Enqueue(thread, TypedEnqueueCall<Arguments...>(native, arguments...));
      } else {
        return ReportFailure(thread, interceptor, native(arguments...));
      }
    } catch (...) {
      return abi::kInternalError;
    }
  }
};

#define GENERIC_ENTRY(symbol, name, enqueues, profiled, ...)                                 \
  Intercepted {                                                                              \
    symbol,                                                                                  \
        reinterpret_cast<void*>(                                                             \
            &GenericEntry<GenericFunction::k##name, enqueues, profiled, __VA_ARGS__>::Call), \
        &GenericEntry<GenericFunction::k##name, enqueues, profiled, __VA_ARGS__>::original   \
  }
#define ENQUEUE_ENTRIES(name, ...)                             \
  GENERIC_ENTRY("nccl" #name, name, true, false, __VA_ARGS__), \
      GENERIC_ENTRY("pnccl" #name, name, true, true, __VA_ARGS__),
#define OBSERVED_ENTRIES(name, ...)                             \
  GENERIC_ENTRY("nccl" #name, name, false, false, __VA_ARGS__), \
      GENERIC_ENTRY("pnccl" #name, name, false, true, __VA_ARGS__),

#define ENTRIES(name)                                                                         \
  Intercepted{"nccl" #name, reinterpret_cast<void*>(&Entry<&Interceptor::name, false>::Call), \
              &Entry<&Interceptor::name, false>::original},                                   \
      Intercepted {                                                                           \
    "pnccl" #name, reinterpret_cast<void*>(&Entry<&Interceptor::name, true>::Call),           \
        &Entry<&Interceptor::name, true>::original                                            \
  }

const std::array kIntercepted = {ENTRIES(CommInitRank),
                                 ENTRIES(CommInitRankConfig),
                                 ENTRIES(CommInitRankScalable),
                                 ENTRIES(CommInitAll),
                                 ENTRIES(CommSplit),
                                 ENTRIES(CommShrink),
                                 ENTRIES(CommDestroy),
                                 ENTRIES(CommAbort),
                                 ENTRIES(CommRevoke),
                                 ENTRIES(CommGetAsyncError),
                                 ENTRIES(GroupStart),
                                 ENTRIES(GroupEnd),
                                 ENTRIES(GroupSimulateEnd),
                                 ENTRIES(Send),
                                 ENTRIES(Recv),
                                 ENTRIES(RedOpDestroy),
                                 NCCLTUNE_ENQUEUE_CALLS(ENQUEUE_ENTRIES)
                                     OBSERVED_CALLS(OBSERVED_ENTRIES)};

#undef ENTRIES
#undef ENQUEUE_ENTRIES
#undef OBSERVED_ENTRIES
#undef GENERIC_ENTRY
#undef OBSERVED_CALLS

template <typename Function>
void Find(const RealNccl& nccl, const char* symbol, Function** function) {
  *function = reinterpret_cast<Function*>(nccl.Find(symbol));
}

}  // namespace

std::span<const Intercepted> AllIntercepted() { return kIntercepted; }

void Bind(const RealNccl& nccl, Native* native) {
#define BIND(name) Find(nccl, "nccl" #name, &native->name)
  BIND(GetVersion);
  BIND(CommCount);
  BIND(CommUserRank);
  BIND(CommInitRank);
  BIND(CommInitRankConfig);
  BIND(CommInitRankScalable);
  BIND(CommInitAll);
  BIND(CommSplit);
  BIND(CommShrink);
  BIND(CommDestroy);
  BIND(CommAbort);
  BIND(CommRevoke);
  BIND(CommGetAsyncError);
  BIND(GroupStart);
  BIND(GroupEnd);
  BIND(GroupSimulateEnd);
  BIND(Send);
  BIND(Recv);
  BIND(RedOpDestroy);
#undef BIND
}

void Install(Interceptor* interceptor, const CodeRange& nccl) {
  g_installed.nccl = nccl;
  g_installed.interceptor.store(interceptor, std::memory_order_release);
}

ThreadState& ThisThread() { return t_thread; }

}  // namespace nccltune::sendrecv
