// SPDX-License-Identifier: Apache-2.0
//
// Between the shell, which stands before NCCL, and what is done with the calls.
#ifndef NCCLTUNE_SENDRECV_INTERPOSE_H_
#define NCCLTUNE_SENDRECV_INTERPOSE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "sendrecv/nccl_api.h"

namespace nccltune::sendrecv {

// NCCLTUNE_SENDRECV. With 0 no interceptor is made.
enum class Mode { kOn, kVerify, kDryRun };

// The real NCCL's functions that are called from here; null where that NCCL lacks it. They may be
// called from any thread: what NCCL calls of itself meanwhile is not intercepted.
struct Native {
  // Of every message: side by side.
  nccl::Result (*GroupStart)() = nullptr;
  nccl::Result (*GroupEnd)() = nullptr;
  nccl::Result (*Send)(const void* buffer, size_t count, nccl::DataType type, int peer,
                       nccl::Comm comm, nccl::Stream stream) = nullptr;
  nccl::Result (*Recv)(void* buffer, size_t count, nccl::DataType type, int peer, nccl::Comm comm,
                       nccl::Stream stream) = nullptr;

  std::string path;  // of the real NCCL
  int version = 0;   // as ncclGetVersion has it

  nccl::Result (*GetVersion)(int* version) = nullptr;
  nccl::Result (*GetUniqueId)(nccl::UniqueId* id) = nullptr;
  const char* (*GetErrorString)(nccl::Result result) = nullptr;
  const char* (*GetLastError)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommCount)(nccl::Comm comm, int* count) = nullptr;
  nccl::Result (*CommUserRank)(nccl::Comm comm, int* rank) = nullptr;
  nccl::Result (*CommCuDevice)(nccl::Comm comm, int* device) = nullptr;

  nccl::Result (*CommInitRank)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) = nullptr;
  nccl::Result (*CommInitRankConfig)(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                     nccl::Config* config) = nullptr;
  nccl::Result (*CommInitRankScalable)(nccl::Comm* comm, int ranks, int rank, int ids,
                                       nccl::UniqueId* id, nccl::Config* config) = nullptr;
  nccl::Result (*CommInitAll)(nccl::Comm* comms, int devices, const int* list) = nullptr;
  nccl::Result (*CommSplit)(nccl::Comm comm, int color, int key, nccl::Comm* made,
                            nccl::Config* config) = nullptr;
  nccl::Result (*CommShrink)(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                             nccl::Config* config, int flags) = nullptr;
  nccl::Result (*CommGrow)(nccl::Comm comm, int ranks, const nccl::UniqueId* id, int rank,
                           nccl::Comm* made, nccl::Config* config) = nullptr;
  nccl::Result (*CommFinalize)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommDestroy)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommAbort)(nccl::Comm comm) = nullptr;
  nccl::Result (*CommRevoke)(nccl::Comm comm, int flags) = nullptr;
  nccl::Result (*CommGetAsyncError)(nccl::Comm comm, nccl::Result* error) = nullptr;
  nccl::Result (*GroupSimulateEnd)(nccl::SimInfo* info) = nullptr;
  nccl::Result (*MemFree)(void* memory) = nullptr;
  nccl::Result (*CommRegister)(nccl::Comm comm, void* buffer, size_t bytes,
                               void** handle) = nullptr;
  nccl::Result (*CommDeregister)(nccl::Comm comm, void* handle) = nullptr;
};

// What a thread has here.
struct Thread {
  bool inside = false;  // in a call that was intercepted
  void* own = nullptr;  // the interceptor's, who knows how long it lasts
};
Thread& ThisThread();

// The application's calls; each goes to NCCL as it is where it is not overridden. Called by many
// threads at once, and by a process that was forked. A call that the real NCCL lacks never comes,
// and communicators come whose making was not seen. What a method throws ends as
// ncclInternalError. The one of a process is never destroyed.
class Interceptor {
 public:
  explicit Interceptor(const Native& native) : native_(native) {}
  virtual ~Interceptor() = default;
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  virtual nccl::Result CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank);
  virtual nccl::Result CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                          nccl::Config* config);
  virtual nccl::Result CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                            nccl::UniqueId* id, nccl::Config* config);
  virtual nccl::Result CommInitAll(nccl::Comm* comms, int devices, const int* list);
  virtual nccl::Result CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                                 nccl::Config* config);
  virtual nccl::Result CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                                  nccl::Config* config, int flags);
  virtual nccl::Result CommGrow(nccl::Comm comm, int ranks, const nccl::UniqueId* id, int rank,
                                nccl::Comm* made, nccl::Config* config);
  virtual nccl::Result CommFinalize(nccl::Comm comm);
  virtual nccl::Result CommDestroy(nccl::Comm comm);
  virtual nccl::Result CommAbort(nccl::Comm comm);
  virtual nccl::Result CommRevoke(nccl::Comm comm, int flags);
  virtual nccl::Result CommGetAsyncError(nccl::Comm comm, nccl::Result* error);
  virtual nccl::Result GroupStart(Thread& thread);
  virtual nccl::Result GroupEnd(Thread& thread);
  virtual nccl::Result GroupSimulateEnd(nccl::SimInfo* info);
  virtual nccl::Result Send(Thread& thread, const void* buffer, size_t count, nccl::DataType type,
                            int peer, nccl::Comm comm, nccl::Stream stream);
  virtual nccl::Result Recv(Thread& thread, void* buffer, size_t count, nccl::DataType type,
                            int peer, nccl::Comm comm, nccl::Stream stream);
  virtual nccl::Result MemFree(void* memory);
  virtual nccl::Result CommRegister(nccl::Comm comm, void* buffer, size_t bytes, void** handle);
  virtual nccl::Result CommDeregister(nccl::Comm comm, void* handle);

  // Something that enqueues other work, a collective for example, is about to be called, by the
  // application or by NCCL on one of its own threads. Must not throw.
  virtual void Work() noexcept {}

 protected:
  const Native& native() const { return native_; }

 private:
  const Native& native_;
};

// Of whoever links the shell. Once a process, at the first call of NCCL, by the thread that makes
// it while all others wait, so not for long. Null: everything goes straight to NCCL. `native` lives
// as long as the interceptor.
std::unique_ptr<Interceptor> NewInterceptor(Mode mode, const Native& native);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_INTERPOSE_H_
