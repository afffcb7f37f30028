// SPDX-License-Identifier: Apache-2.0
//
// Groups, messages and collectives.
#include <atomic>
#include <iterator>
#include <utility>

#include "sendrecv/stand_in/nccl_api.h"
#include "sendrecv/stand_in/nccl_kernel.h"

namespace nccltune::soft {
namespace {

std::atomic<uint64_t> all_sends{0};
std::atomic<uint64_t> all_receives{0};

// Makes NCCL's checks for enqueuing calls. Returns 0 and sets `comm` if all are passed.
ncclResult_t Check(ncclComm_t handle, ncclDataType_t type, int rank, std::shared_ptr<Comm>* comm) {
  *comm = ReadyComm(handle);
  if (*comm == nullptr) {
    return FailGroup(Fail(kNcclInvalidArgument, "a communicator that is none, or not ready"));
  }
  if ((*comm)->aborted || (*comm)->revoked) return FailGroup(kNcclInvalidUsage);
  if (const ncclResult_t error = (*comm)->error) return FailGroup(error);
  if (SizeOf(type) == 0 || rank < 0 || rank >= (*comm)->ranks) {
    return FailGroup(Fail(kNcclInvalidArgument, "no such peer, root or type"));
  }
  return kNcclSuccess;
}

ncclResult_t CheckOp(const Comm& comm, ncclRedOp_t op) {
  const bool known = op >= 0 && (op < kNcclBuiltInOps || comm.ops.contains(op));
  return known ? kNcclSuccess : FailGroup(Fail(kNcclInvalidArgument, "no such operation"));
}

// One operation. Outside of a group it gets its own group.
class Operation {
 public:
  Operation(ncclComm_t comm, ncclDataType_t type, int rank, CUstream stream)
      : stream_(stream), type_(type), result_(Check(comm, type, rank, &comm_)) {
    StartGroup();
  }

  void CheckOperator(ncclRedOp_t op) {
    if (result_ == kNcclSuccess) result_ = CheckOp(*comm_, op);
  }

  // `peer`: the peer or the root.
  void Add(TaskKind kind, CUdeviceptr from, CUdeviceptr to, size_t count, int peer = 0) {
    if (result_ != kNcclSuccess) return;
    Task task;
    task.kind = kind;
    task.comm = comm_;
    task.stream = stream_;
    task.from = from;
    task.to = to;
    task.bytes = count * SizeOf(type_);
    task.type = type_;
    task.peer = peer;
    result_ = AddTask(std::move(task));
  }

  void Send(CUdeviceptr from, size_t count, int peer) {
    Add(TaskKind::kSend, from, 0, count, peer);
  }
  void Receive(CUdeviceptr to, size_t count, int peer) {
    Add(TaskKind::kReceive, 0, to, count, peer);
  }

  bool well() const { return result_ == kNcclSuccess; }
  Comm& comm() const { return *comm_; }
  size_t element() const { return SizeOf(type_); }

  ncclResult_t End() {
    if (result_ != kNcclSuccess) FailGroup(result_);
    const ncclResult_t ended = EndGroup();
    return result_ == kNcclSuccess ? ended : result_;
  }

 private:
  std::shared_ptr<Comm> comm_;
  CUstream stream_;
  ncclDataType_t type_;
  ncclResult_t result_;
};

}  // namespace

SOFT_NCCL(ncclGroupStart, ()) {
  SOFT_NCCL_ENTER();
  StartGroup();
  return kNcclSuccess;
}

SOFT_NCCL(ncclGroupEnd, ()) {
  SOFT_NCCL_ENTER();
  return EndGroup();
}

SOFT_NCCL(ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
  SOFT_NCCL_ENTER();
  return EndGroup(info);
}

SOFT_NCCL(ncclSend, (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, peer, stream);
  if (operation.well()) all_sends.fetch_add(1);
  operation.Send(AddressOf(from), count, peer);
  return operation.End();
}

SOFT_NCCL(ncclRecv, (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, peer, stream);
  if (operation.well()) all_receives.fetch_add(1);
  operation.Receive(AddressOf(to), count, peer);
  return operation.End();
}

// As in NCCL, these collectives are messages in the queues of ncclSend and ncclRecv.
SOFT_NCCL(ncclAlltoAll, (const void* from, void* to, size_t count, ncclDataType_t type,
                         ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, 0, stream);
  const size_t bytes = count * operation.element();
  for (int rank = 0; operation.well() && rank < operation.comm().ranks; ++rank) {
    operation.Send(AddressOf(from) + bytes * static_cast<size_t>(rank), count, rank);
    operation.Receive(AddressOf(to) + bytes * static_cast<size_t>(rank), count, rank);
  }
  return operation.End();
}

SOFT_NCCL(ncclGather, (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, root, stream);
  operation.Send(AddressOf(from), count, root);
  const size_t bytes = count * operation.element();
  const bool receives = operation.well() && operation.comm().rank == root;
  for (int rank = 0; receives && rank < operation.comm().ranks; ++rank) {
    operation.Receive(AddressOf(to) + bytes * static_cast<size_t>(rank), count, rank);
  }
  return operation.End();
}

SOFT_NCCL(ncclScatter, (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, root, stream);
  const size_t bytes = count * operation.element();
  const bool sends = operation.well() && operation.comm().rank == root;
  for (int rank = 0; sends && rank < operation.comm().ranks; ++rank) {
    operation.Send(AddressOf(from) + bytes * static_cast<size_t>(rank), count, rank);
  }
  operation.Receive(AddressOf(to), count, root);
  return operation.End();
}

// An operator of the application is treated as a sum.
SOFT_NCCL(ncclAllReduce, (const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, 0, stream);
  operation.CheckOperator(op);
  const bool acted = (op == kNcclSum || op >= kNcclBuiltInOps) && CanAdd(type);
  if (operation.well() && acted) {
    operation.Add(TaskKind::kAllReduce, AddressOf(from), AddressOf(to), count);
  }
  return operation.End();
}

SOFT_NCCL(ncclBroadcast, (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, root, stream);
  operation.Add(TaskKind::kBroadcast, AddressOf(from), AddressOf(to), count, root);
  return operation.End();
}

SOFT_NCCL(ncclBcast, (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                      CUstream stream)) {
  return acts::ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

// The arguments of these functions are checked, but no data is moved.
SOFT_NCCL(ncclAllGather, (const void* /*from*/, void* /*to*/, size_t /*count*/, ncclDataType_t type,
                          ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  return Operation(comm, type, 0, stream).End();
}

SOFT_NCCL(ncclReduce, (const void* /*from*/, void* /*to*/, size_t /*count*/, ncclDataType_t type,
                       ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, root, stream);
  operation.CheckOperator(op);
  return operation.End();
}

SOFT_NCCL(ncclReduceScatter,
          (const void* /*from*/, void* /*to*/, size_t /*count*/, ncclDataType_t type,
           ncclRedOp_t op, ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  Operation operation(comm, type, 0, stream);
  operation.CheckOperator(op);
  return operation.End();
}

SOFT_NCCL(ncclPutSignal, (const void* /*from*/, size_t /*count*/, ncclDataType_t type, int peer,
                          void* /*window*/, size_t /*offset*/, int /*signal*/, int /*context*/,
                          unsigned /*flags*/, ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  return Operation(comm, type, peer, stream).End();
}

SOFT_NCCL(ncclSignal, (int peer, int /*signal*/, int /*context*/, unsigned /*flags*/,
                       ncclComm_t comm, CUstream stream)) {
  SOFT_NCCL_ENTER();
  return Operation(comm, kNcclInt8, peer, stream).End();
}

SOFT_NCCL(ncclWaitSignal, (int /*count*/, ncclWaitSignalDesc_t* /*descriptors*/, ncclComm_t comm,
                           CUstream stream)) {
  SOFT_NCCL_ENTER();
  return Operation(comm, kNcclInt8, 0, stream).End();
}

// A bad configuration makes the whole group fail.
#define SOFT_NCCL_WITH_CONFIG(name, parameters, arguments)                       \
  SOFT_NCCL(name##Config, parameters) {                                          \
    const bool well = config == nullptr || config->magic == 0xcafebeef;          \
    if (!well) return FailGroup(Fail(kNcclInvalidArgument, "no configuration")); \
    return acts::name arguments;                                                 \
  }
SOFT_NCCL_WITH_CONFIG(ncclAllGather,
                      (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),
                      (from, to, count, type, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclAllReduce,
                      (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, ncclComm_t comm, CUstream stream,
                       const ncclCollConfig_t* config),
                      (from, to, count, type, op, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclAlltoAll,
                      (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),
                      (from, to, count, type, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclBroadcast,
                      (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),
                      (from, to, count, type, root, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclGather,
                      (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),
                      (from, to, count, type, root, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclReduce,
                      (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream,
                       const ncclCollConfig_t* config),
                      (from, to, count, type, op, root, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclReduceScatter,
                      (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, ncclComm_t comm, CUstream stream,
                       const ncclCollConfig_t* config),
                      (from, to, count, type, op, comm, stream))
SOFT_NCCL_WITH_CONFIG(ncclScatter,
                      (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, CUstream stream, const ncclCollConfig_t* config),
                      (from, to, count, type, root, comm, stream))

SOFT_NCCL(ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void* /*scalar*/, ncclDataType_t /*type*/,
                                     int /*residence*/, ncclComm_t handle)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  *op = comm->next_op++;
  comm->ops.insert(*op);
  return kNcclSuccess;
}

SOFT_NCCL(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t handle)) {
  SOFT_NCCL_ENTER();
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  return comm != nullptr && comm->ops.erase(op) == 1 ? kNcclSuccess : kNcclInvalidArgument;
}

void softNcclCounts(uint64_t* sends, uint64_t* recvs) {
  *sends = all_sends.load();
  *recvs = all_receives.load();
}

}  // namespace nccltune::soft
