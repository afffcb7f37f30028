// SPDX-License-Identifier: Apache-2.0
// Copies and fills. They are done in pieces, in any order and after delays. A GPU runs its copies
// for peers one after another.
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

constexpr size_t kMostParts = 4;
constexpr size_t kNotDivided = 4096;

struct Span {
  uint8_t* to = nullptr;
  const uint8_t* from = nullptr;
  size_t bytes = 0;
};

// Cuts both lists into pieces of equal lengths.
std::vector<Span> Zip(const std::vector<Piece>& to, const std::vector<Piece>& from) {
  std::vector<Span> spans;
  size_t i = 0;
  size_t j = 0;
  size_t at = 0;
  size_t in = 0;
  while (i < to.size() && j < from.size()) {
    const size_t bytes = std::min(to[i].bytes - at, from[j].bytes - in);
    spans.push_back({.to = to[i].data + at, .from = from[j].data + in, .bytes = bytes});
    at += bytes;
    in += bytes;
    if (at == to[i].bytes) ++i, at = 0;
    if (in == from[j].bytes) ++j, in = 0;
  }
  return spans;
}

void Move(const std::vector<Span>& spans) {
  const unsigned delay = Machine::Get().options.delay_us;
  std::vector<Span> parts;
  for (const Span& span : spans) {
    const size_t count = span.bytes < kNotDivided ? 1 : Chance(kMostParts) + 1;
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = span.bytes * i / count;
      const size_t end = span.bytes * (i + 1) / count;
      parts.push_back({span.to + begin, span.from + begin, end - begin});
    }
  }
  std::ranges::rotate(parts, parts.begin() + static_cast<ptrdiff_t>(Chance(parts.size())));
  if (Chance(2) == 0) std::ranges::reverse(parts);
  for (const Span& part : parts) {
    std::memcpy(part.to, part.from, part.bytes);
    MaybeSleep(delay);
  }
}

bool ReachBoth(Context& context, CUdeviceptr to, CUdeviceptr from, size_t bytes,
               std::vector<Piece>& ends, std::vector<Piece>& begins) {
  std::string why;
  ends = Memory::Get().Reach(context.gpu, to, bytes, true, why);
  begins = Memory::Get().Reach(context.gpu, from, bytes, false, why);
  if (!ends.empty() && !begins.empty()) return true;
  context.Fail(kIllegalAddress, "a copy of " + std::to_string(bytes) + " bytes from " +
                                    HexOf(from) + " to " + HexOf(to) + ": " + why);
  return false;
}

void Copy(Context& context, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  std::vector<Piece> ends;
  std::vector<Piece> begins;
  if (!ReachBoth(context, to, from, bytes, ends, begins)) return;
  const auto far = [&](const Piece& piece) { return piece.gpu >= 0 && piece.gpu != context.gpu; };
  std::optional<CopyEngine::Turn> turn;
  if (std::ranges::any_of(ends, far) || std::ranges::any_of(begins, far)) {
    turn.emplace(context.engine);
  }
  Move(Zip(ends, begins));
}

// Returns the kind of a copy. One within the GPU is a kernel.
Operation::Kind KindOf(const Context& context, CUdeviceptr to, CUdeviceptr from) {
  const Memory& memory = Memory::Get();
  if (!memory.IsDevice(from)) return Operation::Kind::kCopyIn;
  if (!memory.IsDevice(to)) return Operation::Kind::kCopyOut;
  const auto far = [&](CUdeviceptr address) {
    std::string why;
    const std::vector<Piece> pieces = memory.Reach(context.gpu, address, 1, false, why);
    return !pieces.empty() && pieces[0].gpu != context.gpu;
  };
  if (far(to)) return Operation::Kind::kPush;
  return far(from) ? Operation::Kind::kPull : Operation::Kind::kKernel;
}

// Returns whether the address is host memory that is not pinned.
bool Pageable(CUdeviceptr address) {
  return !Memory::Get().IsDevice(address) && !Memory::Get().FindHost(address);
}

CUresult EnqueueCopy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  if (bytes == 0) return kCudaSuccess;
  // For pageable memory: filled before the call returns, or written back before it does.
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (Pageable(from)) {
    std::string why;
    if (Memory::Get().Reach(0, from, bytes, false, why).empty()) return kInvalidValue;
    const auto* const data = reinterpret_cast<const uint8_t*>(from);
    staged = std::make_shared<std::vector<uint8_t>>(data, data + bytes);
  }
  Machine& all = Machine::Get();
  Mark mark;
  std::shared_ptr<SoftStream> stream;
  {
    const std::scoped_lock lock(all.mutex);
    stream = all.Find(handle);
    if (stream == nullptr) return kInvalidHandle;
    Context& context = stream->context();
    if (const CUresult error = context.error) return error;
    mark = all.Enqueue(*stream, {.after = {},
                                 .ready = nullptr,
                                 .run =
                                     [=, &context] {
                                       Copy(context, to,
                                            staged == nullptr
                                                ? from
                                                : reinterpret_cast<CUdeviceptr>(staged->data()),
                                            bytes);
                                     },
                                 .kind = KindOf(context, to, from)});
  }
  if (Pageable(to)) {
    mark.Wait();
    return stream->context().error;
  }
  return kCudaSuccess;
}

// Accesses memory as a kernel does. `each` gets each piece, and where in the bytes it begins.
template <typename Each>
bool Access(CUdevice gpu, CUdeviceptr address, size_t bytes, bool writes, const Each& each) {
  if (bytes == 0) return true;
  std::string why;
  size_t at = 0;
  for (const Piece& piece : Memory::Get().Reach(gpu, address, bytes, writes, why)) {
    each(piece, at);
    at += piece.bytes;
  }
  if (at > 0) return true;
  Machine::Get().contexts[static_cast<size_t>(gpu)]->Fail(
      kIllegalAddress, (writes ? "a kernel writes: " : "a kernel reads: ") + why);
  return false;
}

CUresult EnqueueFill(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle) {
  if (bytes == 0) return kCudaSuccess;
  const auto fill = [value](const Piece& piece, size_t) {
    std::memset(piece.data, value, piece.bytes);
  };
  SOFT_STREAM(handle);
  Context& context = stream->context();
  if (const CUresult error = context.error) return error;
  all.Enqueue(*stream, {.after = {}, .ready = nullptr, .run = [=, &context] {
                          Access(context.gpu, to, bytes, true, fill);
                        }});
  return kCudaSuccess;
}

CUresult Finish(CUresult enqueued) {
  return enqueued == kCudaSuccess ? cuStreamSynchronize(nullptr) : enqueued;
}

}  // namespace

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SOFT_ENTER();
  return EnqueueCopy(to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  SOFT_ENTER();
  return EnqueueCopy(to, reinterpret_cast<CUdeviceptr>(from), bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SOFT_ENTER();
  return EnqueueCopy(reinterpret_cast<CUdeviceptr>(to), from, bytes, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  SOFT_ENTER_CONTEXT();
  return Finish(EnqueueCopy(to, reinterpret_cast<CUdeviceptr>(from), bytes, nullptr));
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  SOFT_ENTER_CONTEXT();
  return Finish(EnqueueCopy(reinterpret_cast<CUdeviceptr>(to), from, bytes, nullptr));
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  SOFT_ENTER_CONTEXT();
  return Finish(EnqueueFill(to, value, count, nullptr));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  SOFT_ENTER();
  return EnqueueFill(to, value, count, stream);
}

bool softCudaRead(CUdevice gpu, CUdeviceptr from, void* to, size_t bytes) {
  return Access(gpu, from, bytes, false, [to](const Piece& piece, size_t at) {
    std::memcpy(static_cast<uint8_t*>(to) + at, piece.data, piece.bytes);
  });
}

bool softCudaWrite(CUdevice gpu, CUdeviceptr to, const void* from, size_t bytes) {
  return Access(gpu, to, bytes, true, [from](const Piece& piece, size_t at) {
    std::memcpy(piece.data, static_cast<const uint8_t*>(from) + at, piece.bytes);
  });
}

}  // namespace nccltune::soft
