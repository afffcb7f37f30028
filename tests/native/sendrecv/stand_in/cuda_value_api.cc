// SPDX-License-Identifier: Apache-2.0
//
// Stream operations that write values to memory or wait for them.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"

namespace nccltune::soft {
namespace {

constexpr unsigned kFlush = 1U << 30;
constexpr unsigned kMostInBatch = 256;

template <typename Word>
bool Satisfied(Word now, Word value, unsigned how) {
  switch (how & 3U) {
    case kWaitGeq:
      return static_cast<std::make_signed_t<Word>>(now - value) >= 0;
    case kWaitEq:
      return now == value;
    case kWaitAnd:
      return (now & value) != 0;
    default:
      return static_cast<Word>(~(now | value)) != 0;
  }
}

// Returns null unless the address is aligned and in GPU memory or pinned memory.
template <typename Word>
std::shared_ptr<Word> WordAt(int gpu, CUdeviceptr address, bool write) {
  const Memory& memory = Memory::Get();
  if (address % sizeof(Word) != 0) return nullptr;
  if (!memory.IsDevice(address) && !memory.FindHost(address)) return nullptr;
  std::string why;
  const std::vector<Piece> pieces = memory.Reach(gpu, address, sizeof(Word), write, why);
  if (pieces.size() != 1) return nullptr;
  return {pieces[0].keeps, reinterpret_cast<Word*>(pieces[0].data)};
}

template <typename Word>
CUresult MakeWait(int gpu, CUdeviceptr address, Word value, unsigned flags, Operation& operation) {
  const std::shared_ptr<Word> word = WordAt<Word>(gpu, address, false);
  // Flushing remote writes is not supported.
  if (word == nullptr || (flags & ~3U) != 0) {
    return (flags & kFlush) != 0 ? kNotSupported : kInvalidValue;
  }
  operation.ready = [word, value, flags] {
    return Satisfied(std::atomic_ref<Word>(*word).load(std::memory_order_acquire), value, flags);
  };
  return kCudaSuccess;
}

template <typename Word>
CUresult MakeWrite(int gpu, CUdeviceptr address, Word value, unsigned flags, Operation& operation) {
  const std::shared_ptr<Word> word = WordAt<Word>(gpu, address, true);
  if (word == nullptr || flags > 1) return kInvalidValue;
  operation.kind = Operation::Kind::kWrite;
  operation.run = [word, value] {
    std::atomic_ref<Word>(*word).store(value, std::memory_order_release);
  };
  return kCudaSuccess;
}

CUresult Make(int gpu, const CUstreamBatchMemOpParams& each, Operation& operation) {
  const auto low = static_cast<uint32_t>(each.value);
  switch (each.operation) {
    case kOpWaitValue32:
      return MakeWait<uint32_t>(gpu, each.address, low, each.flags, operation);
    case kOpWriteValue32:
      return MakeWrite<uint32_t>(gpu, each.address, low, each.flags, operation);
    case kOpWaitValue64:
      return MakeWait<uint64_t>(gpu, each.address, each.value, each.flags, operation);
    case kOpWriteValue64:
      return MakeWrite<uint64_t>(gpu, each.address, each.value, each.flags, operation);
    case kOpBarrier:
      return kCudaSuccess;
    default:
      return kNotSupported;
  }
}

CUresult EnqueueAll(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* operations) {
  Machine& all = Machine::Get();
  if (all.options.Lacks("memops")) return kNotSupported;
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (const CUresult error = stream->context().error) return error;
  std::vector<Operation> made(count);
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = Make(stream->context().gpu, operations[i], made[i]);
    if (result != kCudaSuccess) return result;
  }
  for (Operation& operation : made) all.Enqueue(*stream, std::move(operation));
  return kCudaSuccess;
}

CUresult EnqueueOne(CUstream stream, int operation, CUdeviceptr address, uint64_t value,
                    unsigned flags) {
  const CUstreamBatchMemOpParams one = {.operation = operation,
                                        .address = address,
                                        .value = value,
                                        .flags = flags,
                                        .alias = 0,
                                        .pad = 0};
  return EnqueueAll(stream, 1, &one);
}

}  // namespace

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                unsigned flags) {
  SOFT_ENTER();
  return EnqueueOne(stream, kOpWaitValue32, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned flags) {
  SOFT_ENTER();
  return EnqueueOne(stream, kOpWriteValue32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                unsigned flags) {
  SOFT_ENTER();
  return EnqueueOne(stream, kOpWaitValue64, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                 unsigned flags) {
  SOFT_ENTER();
  return EnqueueOne(stream, kOpWriteValue64, address, value, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams* operations, unsigned flags) {
  SOFT_ENTER();
  if (flags != 0 || count > kMostInBatch) return kInvalidValue;
  return EnqueueAll(stream, count, operations);
}

}  // namespace nccltune::soft
