// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/hooks/entries.h"

#include <array>
#include <atomic>
#include <cstdint>
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

// Functions that have no method of their own in Interceptor.
enum class GenericFunction : uint8_t {
#define IN_GROUPS(...)
#define HANDLED(...)
#define ENQUEUED(name, ...) k##name,
#define OBSERVED(name, ...) k##name,
#include "sendrecv/hooks/hooked_functions.inc"
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

// Returns the table entry of one of the two names of a function.
template <typename EntryType>
Intercepted Make(const char* symbol) {
  return {symbol, reinterpret_cast<void*>(&EntryType::Call), &EntryType::original};
}

template <typename Function>
void Find(const RealNccl& nccl, const char* symbol, Function** function) {
  *function = reinterpret_cast<Function*>(nccl.Find(symbol));
}

}  // namespace

std::span<const Intercepted> AllIntercepted() {
  // Made at the first call, because other libraries may call NCCL before this one is initialised.
  static const std::array intercepted = {
#define METHOD(name)                                    \
  Make<Entry<&Interceptor::name, false>>("nccl" #name), \
      Make<Entry<&Interceptor::name, true>>("pnccl" #name),
#define GENERIC(name, enqueues, ...)                                                        \
  Make<GenericEntry<GenericFunction::k##name, enqueues, false, __VA_ARGS__>>("nccl" #name), \
      Make<GenericEntry<GenericFunction::k##name, enqueues, true, __VA_ARGS__>>("pnccl" #name),
#define IN_GROUPS(name, ...) METHOD(name)
#define HANDLED(name, ...) METHOD(name)
#define ENQUEUED(name, ...) GENERIC(name, true, __VA_ARGS__)
#define OBSERVED(name, ...) GENERIC(name, false, __VA_ARGS__)
#include "sendrecv/hooks/hooked_functions.inc"
#undef GENERIC
#undef METHOD
  };
  return intercepted;
}

void Bind(const RealNccl& nccl, Native* native) {
#define BIND(name) Find(nccl, "nccl" #name, &native->name);
  BIND(GetVersion)
  BIND(CommCount)
  BIND(CommUserRank)
#define IN_GROUPS(name, ...) BIND(name)
#define HANDLED(name, ...) BIND(name)
#define ENQUEUED(...)
#define OBSERVED(...)
#include "sendrecv/hooks/hooked_functions.inc"
#undef BIND
}

void Install(Interceptor* interceptor, const CodeRange& nccl) {
  g_installed.nccl = nccl;
  g_installed.interceptor.store(interceptor, std::memory_order_release);
}

ThreadState& ThisThread() { return t_thread; }

}  // namespace nccltune::sendrecv
