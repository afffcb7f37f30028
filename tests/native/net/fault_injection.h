// SPDX-License-Identifier: Apache-2.0
// Injects failures of allocations and of epoll_ctl at a chosen call. It replaces operator new, and
// epoll_ctl through the linker's --wrap, so it needs a program of its own.
#ifndef NCCLTUNE_TESTS_NET_FAULT_INJECTION_H_
#define NCCLTUNE_TESTS_NET_FAULT_INJECTION_H_

#include <cstdint>

namespace nccltune::net {

enum class Fault { kMemory, kEpoll };

// Makes `count` calls fail, starting with call number `first`, counted from 1 over all threads.
void Arm(Fault fault, int64_t first, int64_t count);
// Stops injecting. Returns whether a call failed since Arm.
bool Disarm();

// While an object exists, calls of this thread are neither counted nor failed.
class Exempt {
 public:
  Exempt();
  ~Exempt();
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;

 private:
  bool before_;
};

// While an object exists, calls of this thread are counted again.
class NotExempt {
 public:
  NotExempt();
  ~NotExempt();
  NotExempt(const NotExempt&) = delete;
  NotExempt& operator=(const NotExempt&) = delete;

 private:
  bool before_;
};

// Returns the number of unfreed blocks that were allocated by threads without an exemption.
int64_t LiveBlocks();

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_FAULT_INJECTION_H_
