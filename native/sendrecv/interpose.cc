// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

nccl::Result Interceptor::CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) {
  return native_.CommInitRank(comm, ranks, id, rank);
}

nccl::Result Interceptor::CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id,
                                             int rank, nccl::CommConfig* config) {
  return native_.CommInitRankConfig(comm, ranks, id, rank, config);
}

nccl::Result Interceptor::CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                               nccl::UniqueId* id, nccl::CommConfig* config) {
  return native_.CommInitRankScalable(comm, ranks, rank, ids, id, config);
}

nccl::Result Interceptor::CommInitAll(nccl::Comm* comms, int devices, const int* list) {
  return native_.CommInitAll(comms, devices, list);
}

nccl::Result Interceptor::CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                                    nccl::CommConfig* config) {
  return native_.CommSplit(comm, color, key, made, config);
}

nccl::Result Interceptor::CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                                     nccl::CommConfig* config, int flags) {
  return native_.CommShrink(comm, excluded, count, made, config, flags);
}

nccl::Result Interceptor::CommDestroy(nccl::Comm comm) { return native_.CommDestroy(comm); }

nccl::Result Interceptor::CommAbort(nccl::Comm comm) { return native_.CommAbort(comm); }

nccl::Result Interceptor::CommRevoke(nccl::Comm comm, int flags) {
  return native_.CommRevoke(comm, flags);
}

nccl::Result Interceptor::CommGetAsyncError(nccl::Comm comm, nccl::Result* error) {
  return native_.CommGetAsyncError(comm, error);
}

nccl::Result Interceptor::GroupStart(ThreadState& /*thread*/) { return native_.GroupStart(); }

nccl::Result Interceptor::GroupEnd(ThreadState& /*thread*/) { return native_.GroupEnd(); }

nccl::Result Interceptor::GroupSimulateEnd(ThreadState& /*thread*/, nccl::SimInfo* info) {
  return native_.GroupSimulateEnd(info);
}

nccl::Result Interceptor::Send(ThreadState& /*thread*/, const void* buffer, size_t count,
                               nccl::DataType type, int peer, nccl::Comm comm,
                               nccl::Stream stream) {
  return native_.Send(buffer, count, type, peer, comm, stream);
}

nccl::Result Interceptor::Recv(ThreadState& /*thread*/, void* buffer, size_t count,
                               nccl::DataType type, int peer, nccl::Comm comm,
                               nccl::Stream stream) {
  return native_.Recv(buffer, count, type, peer, comm, stream);
}

nccl::Result Interceptor::RedOpDestroy(ThreadState& /*thread*/, nccl::RedOp op, nccl::Comm comm) {
  return native_.RedOpDestroy(op, comm);
}

nccl::Result Interceptor::Enqueue(ThreadState& /*thread*/, const EnqueueCall& call) {
  return call();
}

}  // namespace nccltune::sendrecv
