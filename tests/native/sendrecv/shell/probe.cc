// SPDX-License-Identifier: Apache-2.0
//
// An interceptor that prints the calls it receives on standard output.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "sendrecv/hooks/interpose.h"

namespace nccltune::sendrecv {
namespace {

bool Wants(std::string_view what) {
  const char* const wanted = std::getenv("PROBE");
  return wanted != nullptr && what == wanted;
}

class Probe : public Interceptor {
 public:
  using Interceptor::Interceptor;

  nccl::Result CommInitRank(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank) override {
    Seen("CommInitRank");
    return Interceptor::CommInitRank(comm, ranks, id, rank);
  }
  nccl::Result CommInitRankConfig(nccl::Comm* comm, int ranks, nccl::UniqueId id, int rank,
                                  nccl::CommConfig* config) override {
    std::printf("intercepted CommInitRankConfig %d %d %d %d\n", ranks, id.internal[0],
                static_cast<unsigned char>(id.internal[127]), rank);
    return Interceptor::CommInitRankConfig(comm, ranks, id, rank, config);
  }
  nccl::Result CommInitRankScalable(nccl::Comm* comm, int ranks, int rank, int ids,
                                    nccl::UniqueId* id, nccl::CommConfig* config) override {
    Seen("CommInitRankScalable");
    return Interceptor::CommInitRankScalable(comm, ranks, rank, ids, id, config);
  }
  nccl::Result CommInitAll(nccl::Comm* comms, int devices, const int* list) override {
    Seen("CommInitAll");
    return Interceptor::CommInitAll(comms, devices, list);
  }
  nccl::Result CommSplit(nccl::Comm comm, int color, int key, nccl::Comm* made,
                         nccl::CommConfig* config) override {
    Seen("CommSplit");
    return Interceptor::CommSplit(comm, color, key, made, config);
  }
  nccl::Result CommShrink(nccl::Comm comm, int* excluded, int count, nccl::Comm* made,
                          nccl::CommConfig* config, int flags) override {
    Seen("CommShrink");
    return Interceptor::CommShrink(comm, excluded, count, made, config, flags);
  }
  nccl::Result CommDestroy(nccl::Comm comm) override {
    Seen("CommDestroy");
    return Interceptor::CommDestroy(comm);
  }
  nccl::Result CommAbort(nccl::Comm comm) override {
    Seen("CommAbort");
    return Interceptor::CommAbort(comm);
  }
  nccl::Result CommRevoke(nccl::Comm comm, int flags) override {
    Seen("CommRevoke");
    return Interceptor::CommRevoke(comm, flags);
  }
  nccl::Result CommGetAsyncError(nccl::Comm comm, nccl::Result* error) override {
    Seen("CommGetAsyncError");
    return Interceptor::CommGetAsyncError(comm, error);
  }
  nccl::Result GroupStart(ThreadState& thread) override {
    Seen("GroupStart");
    return Interceptor::GroupStart(thread);
  }
  nccl::Result GroupEnd(ThreadState& thread) override {
    Seen("GroupEnd");
    return Interceptor::GroupEnd(thread);
  }
  nccl::Result GroupSimulateEnd(ThreadState& thread, nccl::SimInfo* info) override {
    Seen("GroupSimulateEnd");
    return Interceptor::GroupSimulateEnd(thread, info);
  }
  nccl::Result Enqueue(ThreadState& thread, const EnqueueCall& call) override {
    Seen("a call that enqueues");
    return Interceptor::Enqueue(thread, call);
  }
  nccl::Result RedOpDestroy(ThreadState& thread, nccl::RedOp op, nccl::Comm comm) override {
    Seen("RedOpDestroy");
    return Interceptor::RedOpDestroy(thread, op, comm);
  }
  nccl::Result Send(ThreadState& thread, const void* buffer, size_t count, nccl::DataType type,
                    int peer, nccl::Comm comm, nccl::Stream stream) override {
    std::printf("intercepted Send %zu %d %d\n", count, static_cast<int>(type), peer);
    if (Wants("throws")) throw std::runtime_error("as it was asked");
    return Interceptor::Send(thread, buffer, count, type, peer, comm, stream);
  }
  nccl::Result Recv(ThreadState& thread, void* buffer, size_t count, nccl::DataType type, int peer,
                    nccl::Comm comm, nccl::Stream stream) override {
    Seen("Recv");
    return Interceptor::Recv(thread, buffer, count, type, peer, comm, stream);
  }

 private:
  static void Seen(const char* call) { std::printf("intercepted %s\n", call); }
};

}  // namespace

std::unique_ptr<Interceptor> NewInterceptor(InterposeMode mode, const Native& native) {
  const char* const word = mode == InterposeMode::kOn       ? "on"
                           : mode == InterposeMode::kVerify ? "verify"
                                                            : "dry-run";
  std::printf("made: %s, NCCL %d, %s\n", word, native.version, native.path.c_str());
  if (Wants("fails")) throw std::runtime_error("as it was asked");
  if (Wants("nothing")) return nullptr;
  // NCCL's CommInitAll calls other functions by their public names, whose trampolines have no
  // target yet.
  native.CommInitAll(nullptr, 0, nullptr);
  return std::make_unique<Probe>(native);
}

}  // namespace nccltune::sendrecv
