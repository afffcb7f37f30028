// SPDX-License-Identifier: Apache-2.0
// Groups, messages and collectives.
#include "bench/nccl/pattern.h"
#include "sendrecv/stand_in/nccl_comm.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

constexpr int kScalarHostImmediate = 1;

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

  void Send(CUdeviceptr from, size_t count, int peer) {
    Add({.kind = TaskKind::kSend, .from = from, .bytes = count * element(), .peer = peer});
  }
  void Receive(CUdeviceptr to, size_t count, int peer) {
    Add({.kind = TaskKind::kReceive, .to = to, .bytes = count * element(), .peer = peer});
  }
  // A collective whose inputs have `bytes` each. `sender`: the only rank with an input, or
  // kAllRanks.
  void Collect(const char* name, const void* from, void* to, size_t bytes, size_t result_bytes,
               std::vector<Part> parts, int sender, ncclRedOp_t op = kNcclSum) {
    const bool scaled = well() && op >= kNcclBuiltInOps;
    Add({.kind = TaskKind::kCollective,
         .from = AddressOf(from),
         .to = AddressOf(to),
         .bytes = bytes,
         .peer = sender,
         .name = name,
         .result_bytes = result_bytes,
         .parts = std::move(parts),
         .op = op,
         .scalar = scaled ? comm_->ops[op] : 1});
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
  void Add(Task task) {
    if (result_ != kNcclSuccess) return;
    task.comm = comm_;
    task.stream = stream_;
    task.type = type_;
    result_ = AddTask(std::move(task));
  }

  std::shared_ptr<Comm> comm_;
  CUstream stream_;
  ncclDataType_t type_;
  ncclResult_t result_;
};

}  // namespace

SOFT_NCCL(ncclGroupStart, ()) {
  StartGroup();
  return kNcclSuccess;
}

SOFT_NCCL(ncclGroupEnd, ()) { return EndGroup(); }

SOFT_NCCL(ncclGroupSimulateEnd, (ncclSimInfo_t * info)) { return EndGroup(info); }

SOFT_NCCL(ncclSend, (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  Operation operation(comm, type, peer, stream);
  if (operation.well()) all_sends.fetch_add(1);
  operation.Send(AddressOf(from), count, peer);
  return operation.End();
}

SOFT_NCCL(ncclRecv, (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream)) {
  Operation operation(comm, type, peer, stream);
  if (operation.well()) all_receives.fetch_add(1);
  operation.Receive(AddressOf(to), count, peer);
  return operation.End();
}

// As in NCCL, these collectives are messages in the queues of ncclSend and ncclRecv.
SOFT_NCCL(ncclAlltoAll, (const void* from, void* to, size_t count, ncclDataType_t type,
                         ncclComm_t comm, CUstream stream)) {
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
  Operation operation(comm, type, root, stream);
  const size_t bytes = count * operation.element();
  const bool sends = operation.well() && operation.comm().rank == root;
  for (int rank = 0; sends && rank < operation.comm().ranks; ++rank) {
    operation.Send(AddressOf(from) + bytes * static_cast<size_t>(rank), count, rank);
  }
  operation.Receive(AddressOf(to), count, root);
  return operation.End();
}

SOFT_NCCL(ncclAllReduce, (const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, CUstream stream)) {
  Operation operation(comm, type, 0, stream);
  operation.CheckOperator(op);
  const size_t bytes = count * operation.element();
  operation.Collect("AllReduce", from, to, bytes, bytes, {{Part::kReduced, 0, 0, bytes}}, kAllRanks,
                    op);
  return operation.End();
}

SOFT_NCCL(ncclBroadcast, (const void* from, void* to, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, CUstream stream)) {
  Operation operation(comm, type, root, stream);
  const size_t bytes = count * operation.element();
  operation.Collect("Broadcast", from, to, bytes, bytes, {{root, 0, 0, bytes}}, root);
  return operation.End();
}

SOFT_NCCL(ncclBcast, (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                      CUstream stream)) {
  return acts::ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

SOFT_NCCL(ncclAllGather, (const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, CUstream stream)) {
  Operation operation(comm, type, 0, stream);
  if (operation.well()) {
    const size_t bytes = count * operation.element();
    const auto ranks = static_cast<size_t>(operation.comm().ranks);
    std::vector<Part> parts;
    for (size_t rank = 0; rank < ranks; ++rank) {
      parts.push_back({static_cast<int>(rank), 0, rank * bytes, bytes});
    }
    operation.Collect("AllGather", from, to, bytes, ranks * bytes, std::move(parts), kAllRanks);
  }
  return operation.End();
}

SOFT_NCCL(ncclReduce, (const void* from, void* to, size_t count, ncclDataType_t type,
                       ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream)) {
  Operation operation(comm, type, root, stream);
  operation.CheckOperator(op);
  if (operation.well()) {
    const size_t bytes = count * operation.element();
    std::vector<Part> parts;
    if (operation.comm().rank == root) parts = {{Part::kReduced, 0, 0, bytes}};
    operation.Collect("Reduce", from, to, bytes, bytes, std::move(parts), kAllRanks, op);
  }
  return operation.End();
}

SOFT_NCCL(ncclReduceScatter, (const void* from, void* to, size_t count, ncclDataType_t type,
                              ncclRedOp_t op, ncclComm_t comm, CUstream stream)) {
  Operation operation(comm, type, 0, stream);
  operation.CheckOperator(op);
  if (operation.well()) {
    const size_t bytes = count * operation.element();
    const Comm& all = operation.comm();
    operation.Collect("ReduceScatter", from, to, static_cast<size_t>(all.ranks) * bytes, bytes,
                      {{Part::kReduced, static_cast<size_t>(all.rank) * bytes, 0, bytes}},
                      kAllRanks, op);
  }
  return operation.End();
}

SOFT_NCCL(ncclPutSignal, (const void* /*from*/, size_t /*count*/, ncclDataType_t type, int peer,
                          void* /*window*/, size_t /*offset*/, int /*signal*/, int /*context*/,
                          unsigned /*flags*/, ncclComm_t comm, CUstream stream)) {
  return Operation(comm, type, peer, stream).End();
}

SOFT_NCCL(ncclSignal, (int peer, int /*signal*/, int /*context*/, unsigned /*flags*/,
                       ncclComm_t comm, CUstream stream)) {
  return Operation(comm, kNcclInt8, peer, stream).End();
}

SOFT_NCCL(ncclWaitSignal, (int /*count*/, ncclWaitSignalDesc_t* /*descriptors*/, ncclComm_t comm,
                           CUstream stream)) {
  return Operation(comm, kNcclInt8, 0, stream).End();
}

// A bad configuration makes the whole group fail.
#define SOFT_NCCL_WITH_CONFIG(F, name, parameters, arguments)                    \
  SOFT_NCCL(name##Config, SOFT_NCCL_MORE parameters) {                           \
    const bool well = config == nullptr || config->magic == 0xcafebeef;          \
    if (!well) return FailGroup(Fail(kNcclInvalidArgument, "no configuration")); \
    return acts::name arguments;                                                 \
  }
SOFT_NCCL_CONFIGURED(SOFT_NCCL_WITH_CONFIG, )

SOFT_NCCL(ncclRedOpCreatePreMulSum,
          (ncclRedOp_t * op, void* scalar, ncclDataType_t type, int residence, ncclComm_t handle)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr) return kNcclInvalidArgument;
  // The scalar of another residence is read later, which is not supported.
  if (residence != kScalarHostImmediate) return kNcclInvalidArgument;
  *op = comm->next_op++;
  comm->ops[*op] = bench::Decode(static_cast<bench::Dtype>(type), scalar);
  ++live_objects;
  return kNcclSuccess;
}

SOFT_NCCL(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t handle)) {
  const std::shared_ptr<Comm> comm = ReadyComm(handle);
  if (comm == nullptr || comm->ops.erase(op) == 0) return kNcclInvalidArgument;
  --live_objects;
  return kNcclSuccess;
}

long softNcclLive() { return live_objects; }

void softNcclCounts(uint64_t* sends, uint64_t* recvs) {
  *sends = all_sends.load();
  *recvs = all_receives.load();
}

}  // namespace nccltune::soft
