// SPDX-License-Identifier: Apache-2.0
//
// A fake NCCL, built as libnccl.so.2: NCCL's interface on top of fake_comm.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "bench/nccl/fake_comm.h"
#include "bench/nccl/pattern.h"
#include "host/nccl_stand_in.h"
#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::nccl {

struct CommRecord : fake::Comm {
  using Comm::Comm;
};

}  // namespace nccltune::nccl

namespace {

namespace abi = nccltune::abi;
namespace cu = nccltune::cu;
namespace soft = nccltune::soft;
using nccltune::bench::Dtype;
using nccltune::bench::Redop;
using nccltune::fake::Call;
using nccltune::fake::ResultPiece;
using nccltune::fake::Transfer;
using nccltune::nccl::Comm;
using nccltune::nccl::CommRecord;
using nccltune::nccl::Result;
using nccltune::nccl::UniqueId;

constexpr int kFirstUserOp = 5;

std::atomic<long> live = 0;  // communicators, registrations, operations, allocations

struct Group {
  int depth = 0;
  std::vector<Call> calls;  // equal collectives of one communicator
  std::vector<Transfer> transfers;
  Comm comm = nullptr;
  cu::Stream stream = nullptr;
};
thread_local Group group;

size_t Bytes(size_t count, int type) {
  return count * static_cast<size_t>(nccltune::bench::SizeOf(static_cast<Dtype>(type)));
}

Call Made(int function, const char* name, const void* send, void* receive, size_t tuner_bytes) {
  Call call;
  call.function = function;
  call.name = name;
  call.tuner_bytes = tuner_bytes;
  call.send_bytes = tuner_bytes;
  call.receive_bytes = tuner_bytes;
  call.send = send;
  call.receive = receive;
  call.exchange.send = static_cast<const unsigned char*>(send);
  call.exchange.receive = static_cast<unsigned char*>(receive);
  return call;
}

void SetReduction(Call* call, int type, int op, Comm comm) {
  call->exchange.dtype = static_cast<Dtype>(type);
  call->exchange.redop = op < kFirstUserOp ? static_cast<Redop>(op) : Redop::kMulsum;
  if (op >= kFirstUserOp) call->exchange.scalar = comm->scalar_of(op - kFirstUserOp);
}

// Enqueues a collective, or keeps it for the end of the group.
Result Submit(Call call, Comm comm, cu::Stream stream) {
  if (group.depth == 0) return comm->Enqueue(std::move(call), stream);
  group.comm = comm;
  group.stream = stream;
  group.calls.push_back(std::move(call));
  return abi::kSuccess;
}

bool IsBad(size_t /*count*/, int type) { return type < 0 || type > 11; }

}  // namespace

#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-declarations"
extern "C" {

// ncclGetVersion is the host's stand-in, exported by this library too. It reports
// FAKE_NCCL_VERSION, which is read when the library is opened and by this function.
void fake_nccl_read_version();
__attribute__((constructor)) void fake_nccl_read_version() {
  nccltune::host::StandInForNccl(nccltune::fake::VersionFromEnvironment());
}

// For tests: the number of objects that were not released.
long fake_nccl_live();
long fake_nccl_live() { return live; }

Result ncclGetUniqueId(UniqueId* id) {
  const std::string name = nccltune::fake::World::Create();
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return abi::kSuccess;
}

const char* ncclGetErrorString(Result result) {
  return result == abi::kInvalidArgument ? "invalid argument" : "unhandled made-up error";
}

const char* ncclGetLastError(Comm comm) {
  return comm == nullptr ? "" : comm->last_error().c_str();
}

Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank) {
  if (std::getenv("FAKE_NCCL_INIT_FAILS") != nullptr) return abi::kSystemError;
  *comm = new CommRecord(id.internal, ranks, rank);
  ++live;
  (*comm)->Init();
  return abi::kSuccess;
}

Result ncclCommDestroy(Comm comm) {
  delete comm;
  --live;
  return abi::kSuccess;
}

Result ncclCommAbort(Comm comm) {
  comm->Abort();
  // Streams may still hold operations of the communicator.
  static std::mutex mutex;
  static auto* const aborted = new std::vector<Comm>;  // never destroyed: streams outlive it
  const std::scoped_lock lock(mutex);
  aborted->push_back(comm);
  --live;
  return abi::kSuccess;
}

Result ncclCommGetAsyncError(Comm comm, Result* error) {
  *error = comm->asynchronous_error();
  return abi::kSuccess;
}

Result ncclMemAlloc(void** pointer, size_t bytes) {
  soft::CUdeviceptr start = 0;
  if (soft::cuMemAlloc_v2(&start, bytes) != 0) return abi::kUnhandledCudaError;
  *pointer = reinterpret_cast<void*>(start);
  ++live;
  return abi::kSuccess;
}

Result ncclMemFree(void* pointer) {
  --live;
  const auto start = reinterpret_cast<soft::CUdeviceptr>(pointer);
  return soft::cuMemFree_v2(start) == 0 ? abi::kSuccess : abi::kUnhandledCudaError;
}

Result ncclCommRegister(Comm comm, void* buffer, size_t bytes, void** handle) {
  comm->Register(buffer, bytes);
  *handle = buffer;
  ++live;
  return abi::kSuccess;
}

Result ncclCommDeregister(Comm comm, void* handle) {
  comm->Deregister(handle);
  --live;
  return abi::kSuccess;
}

Result ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, Comm comm) {
  if (residence != nccltune::nccl::kScalarHostImmediate) return abi::kInvalidArgument;
  const double number = nccltune::bench::Decode(static_cast<Dtype>(type), scalar);
  *op = kFirstUserOp + comm->KeepScalar(number);
  ++live;
  return abi::kSuccess;
}

Result ncclRedOpDestroy(int, Comm) {
  --live;
  return abi::kSuccess;
}

Result ncclGroupStart() {
  ++group.depth;
  return abi::kSuccess;
}

Result ncclGroupEnd() {
  if (--group.depth > 0 || group.comm == nullptr) return abi::kSuccess;
  Group whole = std::move(group);
  group = {};
  if (!whole.calls.empty()) return whole.comm->EnqueueCalls(std::move(whole.calls), whole.stream);
  return whole.comm->EnqueueGroup(whole.transfers, whole.stream);
}

Result ncclSend(const void* send, size_t count, int type, int peer, Comm comm, cu::Stream stream) {
  if (group.depth == 0 || IsBad(count, type)) return abi::kInvalidUsage;
  group.comm = comm;
  group.stream = stream;
  group.transfers.push_back(
      {true, static_cast<const unsigned char*>(send), nullptr, Bytes(count, type), peer});
  return abi::kSuccess;
}

Result ncclRecv(void* receive, size_t count, int type, int peer, Comm comm, cu::Stream stream) {
  if (group.depth == 0 || IsBad(count, type)) return abi::kInvalidUsage;
  group.comm = comm;
  group.stream = stream;
  group.transfers.push_back(
      {false, nullptr, static_cast<unsigned char*>(receive), Bytes(count, type), peer});
  return abi::kSuccess;
}

Result ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, Comm comm,
                     cu::Stream stream) {
  if (IsBad(count, type)) return abi::kInvalidArgument;
  const size_t bytes = Bytes(count, type);
  Call call = Made(abi::kBroadcast, "Broadcast", send, receive, bytes);
  if (comm->rank() == root) call.exchange.send_bytes = bytes;
  call.exchange.parts = {{root, 0, 0, bytes}};
  return Submit(std::move(call), comm, stream);
}

Result ncclReduce(const void* send, void* receive, size_t count, int type, int op, int root,
                  Comm comm, cu::Stream stream) {
  if (IsBad(count, type)) return abi::kInvalidArgument;
  const size_t bytes = Bytes(count, type);
  Call call = Made(abi::kReduce, "Reduce", send, receive, bytes);
  call.exchange.send_bytes = bytes;
  if (comm->rank() == root) call.exchange.parts = {{ResultPiece::kReduced, 0, 0, bytes}};
  SetReduction(&call, type, op, comm);
  return Submit(std::move(call), comm, stream);
}

Result ncclAllReduce(const void* send, void* receive, size_t count, int type, int op, Comm comm,
                     cu::Stream stream) {
  if (IsBad(count, type)) return abi::kInvalidArgument;
  const size_t bytes = Bytes(count, type);
  Call call = Made(abi::kAllReduce, "AllReduce", send, receive, bytes);
  call.exchange.send_bytes = bytes;
  call.exchange.parts = {{ResultPiece::kReduced, 0, 0, bytes}};
  SetReduction(&call, type, op, comm);
  return Submit(std::move(call), comm, stream);
}

Result ncclAllGather(const void* send, void* receive, size_t count, int type, Comm comm,
                     cu::Stream stream) {
  if (IsBad(count, type)) return abi::kInvalidArgument;
  const size_t bytes = Bytes(count, type);
  const auto ranks = static_cast<size_t>(comm->ranks());
  Call call = Made(abi::kAllGather, "AllGather", send, receive, ranks * bytes);
  call.send_bytes = bytes;
  call.exchange.send_bytes = bytes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    call.exchange.parts.push_back({static_cast<int>(rank), 0, rank * bytes, bytes});
  }
  return Submit(std::move(call), comm, stream);
}

Result ncclReduceScatter(const void* send, void* receive, size_t count, int type, int op, Comm comm,
                         cu::Stream stream) {
  if (IsBad(count, type)) return abi::kInvalidArgument;
  const size_t bytes = Bytes(count, type);
  const auto ranks = static_cast<size_t>(comm->ranks());
  const auto rank = static_cast<size_t>(comm->rank());
  Call call = Made(abi::kReduceScatter, "ReduceScatter", send, receive, ranks * bytes);
  call.receive_bytes = bytes;
  call.exchange.send_bytes = ranks * bytes;
  call.exchange.parts = {{ResultPiece::kReduced, rank * bytes, 0, bytes}};
  SetReduction(&call, type, op, comm);
  return Submit(std::move(call), comm, stream);
}

}  // extern "C"
