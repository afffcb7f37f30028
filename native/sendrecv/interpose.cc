// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

nccl::Result Interceptor::CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) {
  return native_.CommInitRank(comm, ranks, id, rank);
}

nccl::Result Interceptor::CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id,
                                             int rank, nccl::Config* config) {
  return native_.CommInitRankConfig(comm, ranks, id, rank, config);
}

nccl::Result Interceptor::CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                               nccl::UniqueId* id, nccl::Config* config) {
  return native_.CommInitRankScalable(comm, ranks, rank, ids, id, config);
}

nccl::Result Interceptor::CommInitAll(nccl::Comm* comms, int devices, const int* list) {
  return native_.CommInitAll(comms, devices, list);
}

nccl::Result Interceptor::CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                                    nccl::Config* config) {
  return native_.CommSplit(comm, color, key, made, config);
}

nccl::Result Interceptor::CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                                     nccl::Config* config, int flags) {
  return native_.CommShrink(comm, excluded, count, made, config, flags);
}

nccl::Result Interceptor::CommGrow(nccl::Comm comm, int ranks, const nccl::UniqueId* id, int rank,
                                   nccl::Comm* made, nccl::Config* config) {
  return native_.CommGrow(comm, ranks, id, rank, made, config);
}

nccl::Result Interceptor::CommFinalize(nccl::Comm comm) { return native_.CommFinalize(comm); }

nccl::Result Interceptor::CommDestroy(nccl::Comm comm) { return native_.CommDestroy(comm); }

nccl::Result Interceptor::CommAbort(nccl::Comm comm) { return native_.CommAbort(comm); }

nccl::Result Interceptor::CommRevoke(nccl::Comm comm, int flags) {
  return native_.CommRevoke(comm, flags);
}

nccl::Result Interceptor::CommGetAsyncError(nccl::Comm comm, nccl::Result* error) {
  return native_.CommGetAsyncError(comm, error);
}

nccl::Result Interceptor::GroupStart(Thread& /*thread*/) { return native_.GroupStart(); }

nccl::Result Interceptor::GroupEnd(Thread& /*thread*/) { return native_.GroupEnd(); }

nccl::Result Interceptor::GroupSimulateEnd(nccl::SimInfo* info) {
  return native_.GroupSimulateEnd(info);
}

nccl::Result Interceptor::Send(Thread& /*thread*/, const void* buffer, size_t count,
                               nccl::DataType type, int peer, nccl::Comm comm,
                               nccl::Stream stream) {
  return native_.Send(buffer, count, type, peer, comm, stream);
}

nccl::Result Interceptor::Recv(Thread& /*thread*/, void* buffer, size_t count, nccl::DataType type,
                               int peer, nccl::Comm comm, nccl::Stream stream) {
  return native_.Recv(buffer, count, type, peer, comm, stream);
}

nccl::Result Interceptor::MemFree(void* memory) { return native_.MemFree(memory); }

nccl::Result Interceptor::CommRegister(nccl::Comm comm, void* buffer, size_t bytes, void** handle) {
  return native_.CommRegister(comm, buffer, bytes, handle);
}

nccl::Result Interceptor::CommDeregister(nccl::Comm comm, void* handle) {
  return native_.CommDeregister(comm, handle);
}

}  // namespace nccltune::sendrecv
