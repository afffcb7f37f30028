// SPDX-License-Identifier: Apache-2.0
//
// An NCCL that does nothing: a benchmark then measures only the library that interposes on it. With
// IDLE_NCCL_KIB, ncclGroupEnd touches that much data and code, as the real NCCL does, so that the
// interposing library finds its own data evicted from the caches.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

struct ncclComm {};

namespace {

constexpr size_t kLine = 64;
constexpr size_t kMost = 256;  // in KiB

// 256 KiB of code in which each cache line jumps to the next, then a return.
extern "C" void idle_nccl_code();
#if defined(__x86_64__)
#define JUMP "jmp"
#else
#define JUMP "b"
#endif
__asm__(".text\n.p2align 6\nidle_nccl_code:\n.rept 4096\n" JUMP
        " 1f\n.p2align 6\n1:\n.endr\nret\n");
#undef JUMP

size_t Lines() {
  static const size_t lines = [] {
    const char* const kib = std::getenv("IDLE_NCCL_KIB");
    const size_t wanted = kib == nullptr ? 0 : std::strtoul(kib, nullptr, 10);
    return (wanted < kMost ? wanted : kMost) * 1024 / kLine;
  }();
  return lines;
}

void UseCaches() {
  alignas(kLine) static std::array<volatile uint64_t, kMost * 1024 / sizeof(uint64_t)> memory;
  const size_t lines = Lines();
  for (size_t i = 0; i < lines; ++i) {
    volatile uint64_t& word = memory[i * kLine / sizeof(uint64_t)];
    word = word + 1;
  }
  // Run only the last `lines` lines, because the code returns at its end.
  const auto begin = reinterpret_cast<uintptr_t>(&idle_nccl_code);
  if (lines != 0) reinterpret_cast<void (*)()>(begin + kMost * 1024 - lines * kLine)();
}

}  // namespace

extern "C" {

SOFT_EXPORT ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int /*ranks*/, ncclUniqueId /*id*/,
                                          int /*rank*/) {
  static ncclComm made;
  *comm = &made;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t /*comm*/, int* rank) {
  *rank = 0;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclCommCount(ncclComm_t /*comm*/, int* ranks) {
  *ranks = 2;
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclGroupStart() { return kNcclSuccess; }
SOFT_EXPORT ncclResult_t ncclGroupEnd() {
  UseCaches();
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclSend(const void* /*from*/, size_t /*count*/, ncclDataType_t /*type*/,
                                  int /*peer*/, ncclComm_t /*comm*/, CUstream /*stream*/) {
  return kNcclSuccess;
}

SOFT_EXPORT ncclResult_t ncclRecv(void* /*to*/, size_t /*count*/, ncclDataType_t /*type*/,
                                  int /*peer*/, ncclComm_t /*comm*/, CUstream /*stream*/) {
  return kNcclSuccess;
}

}  // extern "C"

}  // namespace nccltune::soft
