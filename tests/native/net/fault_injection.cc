// SPDX-License-Identifier: Apache-2.0
#include "net/fault_injection.h"

#include <sys/epoll.h>

#include "standard.h"

namespace nccltune::net {
namespace {

struct Countdown {
  std::atomic<int64_t> left = 0;  // calls left before the first failure; negative after it
  std::atomic<int64_t> count = 0;
  std::atomic<bool> failed = false;

  bool Fails() {
    if (count == 0) return false;
    const int64_t before = --left;
    if (before >= 0 || before < -count) return false;
    failed = true;
    return true;
  }
};

constinit Countdown memory;
constinit Countdown epoll;
constinit thread_local bool exempt = false;
constinit std::atomic<int64_t> live = 0;

// A prefix of each block stores whether it is counted.
constexpr size_t kPrefix = 64;

void* Allocate(size_t bytes, size_t alignment) {
  if (!exempt && memory.Fails()) throw std::bad_alloc();
  const size_t wanted = (bytes + kPrefix + alignment - 1) / alignment * alignment;
  auto* const block = static_cast<std::byte*>(std::aligned_alloc(alignment, wanted));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<bool*>(block) = !exempt;
  if (!exempt) ++live;
  return block + kPrefix;
}

void Free(void* memory_of_new) noexcept {
  if (memory_of_new == nullptr) return;
  std::byte* const block = static_cast<std::byte*>(memory_of_new) - kPrefix;
  if (*reinterpret_cast<bool*>(block)) --live;
  std::free(block);
}

}  // namespace

void Arm(Fault fault, int64_t first, int64_t count) {
  Countdown& countdown = fault == Fault::kMemory ? memory : epoll;
  countdown.failed = false;
  countdown.left = first - 1;
  countdown.count = count;
}

bool Disarm() {
  memory.count = 0;
  epoll.count = 0;
  return memory.failed.exchange(false) | epoll.failed.exchange(false);
}

Exempt::Exempt() : before_(std::exchange(exempt, true)) {}
Exempt::~Exempt() { exempt = before_; }
NotExempt::NotExempt() : before_(std::exchange(exempt, false)) {}
NotExempt::~NotExempt() { exempt = before_; }

int64_t LiveBlocks() { return live; }

}  // namespace nccltune::net

namespace fault = nccltune::net;

void* operator new(size_t bytes) { return fault::Allocate(bytes, fault::kPrefix); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return fault::Allocate(bytes, std::max(static_cast<size_t>(alignment), fault::kPrefix));
}
void operator delete(void* block) noexcept { fault::Free(block); }
void operator delete(void* block, size_t /*bytes*/) noexcept { fault::Free(block); }
void operator delete(void* block, std::align_val_t /*alignment*/) noexcept { fault::Free(block); }
void operator delete(void* block, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  fault::Free(block);
}

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names.
int __real_epoll_ctl(int epoll, int operation, int fd, epoll_event* event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (!fault::exempt && fault::epoll.Fails()) {
    errno = ENOSPC;
    return -1;
  }
  return __real_epoll_ctl(epoll, operation, fd, event);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

}  // extern "C"
