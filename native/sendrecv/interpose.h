// SPDX-License-Identifier: Apache-2.0
//
// The interface between the shell, which exports NCCL's functions, and the interceptor, which
// handles the calls.
#ifndef NCCLTUNE_SENDRECV_INTERPOSE_H_
#define NCCLTUNE_SENDRECV_INTERPOSE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "sendrecv/enqueue_call.h"
#include "sendrecv/nccl_api.h"

namespace nccltune::sendrecv {

// The value of NCCLTUNE_SENDRECV. With 0 no interceptor is created.
enum class InterposeMode { kOn, kVerify, kDryRun };

// The functions of the real NCCL. A pointer is null if that NCCL lacks the function. Any thread may
// call these functions. While such a call runs, the calls that NCCL makes to its own functions are
// not intercepted.
struct Native {
  // The functions that every message needs come first, so that they are in neighbouring cache
  // lines.
  nccl::Result (*GroupStart)() = nullptr;
  nccl::Result (*GroupEnd)() = nullptr;
  nccl::Result (*Send)(const void* buffer, size_t count, nccl::DataType type, int peer,
                       nccl::Comm comm, nccl::Stream stream) = nullptr;
  nccl::Result (*Recv)(void* buffer, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                       nccl::Stream stream) = nullptr;

  std::string path;  // file of the real NCCL
  int version = 0;   // as ncclGetVersion returns it

  nccl::Result (*GetVersion)(int* version) = nullptr;
  nccl::Result (*CommCount)(nccl::Comm comm, int* count) = nullptr;
  nccl::Result (*CommUserRank)(nccl::Comm comm, int* rank) = nullptr;

  nccl::Result (*CommInitRank)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) = nullptr;
  nccl::Result (*CommInitRankConfig)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                     nccl::CommConfig* config) = nullptr;
  nccl::Result (*CommInitRankScalable)(nccl::Comm* comm, int ranks, int rank, int ids,
                                       nccl::UniqueId* id, nccl::CommConfig* config) = nullptr;
  nccl::Result (*CommInitAll)(nccl::Comm* comms, int devices, const int* list) = nullptr;
  nccl::Result (*CommSplit)(nccl::Comm comm, int color, int key, nccl::Comm* made,
                            nccl::CommConfig* config) = nullptr;
  nccl::Result (*CommShrink)(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                             nccl::CommConfig* config, int flags) = nullptr;
  nccl::Result (*CommDestroy)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommAbort)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommRevoke)(nccl::Comm comm, int flags) = nullptr;
  nccl::Result (*CommGetAsyncError)(nccl::Comm comm, nccl::Result* error) = nullptr;
  nccl::Result (*GroupSimulateEnd)(nccl::SimInfo* info) = nullptr;
  nccl::Result (*RedOpDestroy)(nccl::RedOp op, nccl::Comm comm) = nullptr;
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

  virtual nccl::Result CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank);
  virtual nccl::Result CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                          nccl::CommConfig* config);
  virtual nccl::Result CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                            nccl::UniqueId* id, nccl::CommConfig* config);
  virtual nccl::Result CommInitAll(nccl::Comm* comms, int devices, const int* list);
  virtual nccl::Result CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                                 nccl::CommConfig* config);
  virtual nccl::Result CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                                  nccl::CommConfig* config, int flags);
  virtual nccl::Result CommDestroy(nccl::Comm comm);
  virtual nccl::Result CommAbort(nccl::Comm comm);
  virtual nccl::Result CommRevoke(nccl::Comm comm, int flags);
  virtual nccl::Result CommGetAsyncError(nccl::Comm comm, nccl::Result* error);
  virtual nccl::Result GroupStart(ThreadState& thread);
  virtual nccl::Result GroupEnd(ThreadState& thread);
  virtual nccl::Result GroupSimulateEnd(ThreadState& thread, nccl::SimInfo* info);
  virtual nccl::Result Send(ThreadState& thread, const void* buffer, size_t count,
                            nccl::DataType type, int peer, nccl::Comm comm, nccl::Stream stream);
  virtual nccl::Result Recv(ThreadState& thread, void* buffer, size_t count, nccl::DataType type,
                            int peer, nccl::Comm comm, nccl::Stream stream);
  virtual nccl::Result RedOpDestroy(ThreadState& thread, nccl::RedOp op, nccl::Comm comm);
  // Handles a collective or a one-sided operation. See enqueue_call.h.
  virtual nccl::Result Enqueue(ThreadState& thread, const EnqueueCall& call);
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

#endif  // NCCLTUNE_SENDRECV_INTERPOSE_H_
