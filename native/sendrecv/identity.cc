// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/identity.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <optional>
#include <string>

#include "common/content_hash.h"
#include "common/token.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

// The token of this process. It is zero before its first use, and again in a forked child.
struct TokenMemory {
  std::atomic<uint64_t> low = 0;
  std::atomic<uint64_t> high = 0;
};

TokenMemory* g_token = nullptr;

void ClearToken() {
  g_token->low.store(0);
  g_token->high.store(0);
}

// The token has a page of its own, which the kernel clears in children (MADV_WIPEONFORK), also
// after a bare clone(2). Before Linux 4.14 only fork(3) is detected, by a fork handler.
TokenMemory* NewTokenMemory() {
  static TokenMemory fallback;
  TokenMemory* made = &fallback;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const at = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at != MAP_FAILED) {
    if (madvise(at, page, MADV_WIPEONFORK) == 0) return new (at) TokenMemory;
    munmap(at, page);
  }
  g_token = made;
  pthread_atfork(nullptr, nullptr, &ClearToken);
  return made;
}

// Sets the value if it is still 0, and returns the present value. If several threads call this, the
// first one sets the value, and all return the same value.
uint64_t SetOnce(std::atomic<uint64_t>* half, uint64_t random) {
  uint64_t present = 0;
  return half->compare_exchange_strong(present, random) ? random : present;
}

}  // namespace

ProcessToken ThisProcess() {
  static TokenMemory* const memory = NewTokenMemory();
  const ProcessToken known = {.low = memory->low.load(), .high = memory->high.load()};
  if (known.low != 0 && known.high != 0) return known;
  ProcessToken random;
  if (!RandomBytes(&random, sizeof(random))) return {};
  return {.low = SetOnce(&memory->low, random.low | 1),
          .high = SetOnce(&memory->high, random.high | 1)};
}

uint64_t ThisHost() {
  const std::optional<std::string> set = NcclSetting("NCCL_HOSTID");
  return set ? ContentHash(*set) : 0;
}

}  // namespace nccltune::sendrecv
