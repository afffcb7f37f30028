// SPDX-License-Identifier: Apache-2.0
// The interface between the shell, which exports NCCL's functions, and the interceptor, which
// handles the calls.
#pragma once

#include <memory>
#include <string>

#include "sendrecv/hooks/enqueue_call.h"
#include "sendrecv/hooks/nccl_api.h"

namespace nccltune::sendrecv {

// The value of NCCLTUNE_SENDRECV. With 0 no interceptor is created.
enum class InterposeMode { kOn, kVerify, kDryRun };

// The functions of the real NCCL. A pointer is null if that NCCL lacks the function. Any thread may
// call these functions. While such a call runs, the calls that NCCL makes to its own functions are
// not intercepted.
struct Native {
  // Those of every message are in neighbouring cache lines.
#define IN_GROUPS(name, arguments, ...) nccl::Result (*name)(__VA_ARGS__) = nullptr;
#define HANDLED(name, arguments, ...) nccl::Result (*name)(__VA_ARGS__) = nullptr;
#define ENQUEUED(...)
#define OBSERVED(...)
#include "sendrecv/hooks/hooked_functions.inc"

  nccl::Result (*GetVersion)(int* version) = nullptr;
  nccl::Result (*CommCount)(nccl::Comm comm, int* count) = nullptr;
  nccl::Result (*CommUserRank)(nccl::Comm comm, int* rank) = nullptr;

  std::string path;  // file of the real NCCL
  int version = 0;   // as ncclGetVersion returns it
};

// The state that the library keeps for a thread.
struct ThreadState {
  bool inside = false;         // the thread is in an intercepted call
  void* open_group = nullptr;  // the interceptor's OpenGroup, which the interceptor deletes
};
ThreadState& ThisThread();

// Receives the application's calls. A method that is not overridden passes the call to NCCL
// unchanged.
//
// Several threads may call the methods at once, also in a forked child. A method is not called if
// the real NCCL lacks its function. A method may get a communicator whose creation was not
// intercepted. An exception in a method becomes ncclInternalError. The interceptor of a process is
// never destroyed.
class Interceptor {
 public:
  explicit Interceptor(const Native& native) : native_(native) {}
  virtual ~Interceptor() = default;
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

#define IN_GROUPS(name, arguments, ...)                                           \
  virtual nccl::Result name(ThreadState& /*thread*/ __VA_OPT__(, ) __VA_ARGS__) { \
    return native_.name arguments;                                                \
  }
#define HANDLED(name, arguments, ...) \
  virtual nccl::Result name(__VA_ARGS__) { return native_.name arguments; }
#define ENQUEUED(...)
#define OBSERVED(...)
#include "sendrecv/hooks/hooked_functions.inc"
  // Handles a collective or a one-sided operation. See enqueue_call.h.
  virtual nccl::Result Enqueue(ThreadState& /*thread*/, const EnqueueCall& call) { return call(); }
  // Notes that a call that creates or ends a communicator or a window has failed. If the thread is
  // in a group, NCCL may refuse the whole group.
  virtual void MayHaveRefused(ThreadState& /*thread*/) noexcept {}

 protected:
  const Native& native() const { return native_; }

 private:
  const Native& native_;
};

// Creates the interceptor. Returns null if all calls shall go straight to NCCL. Called once in a
// process, at the first NCCL call. Other threads that call NCCL wait meanwhile, so NewInterceptor
// must be fast. `native` lives as long as the interceptor. The library that links the shell defines
// this function.
std::unique_ptr<Interceptor> NewInterceptor(InterposeMode mode, const Native& native);

}  // namespace nccltune::sendrecv
