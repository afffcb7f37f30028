// SPDX-License-Identifier: Apache-2.0
// Sits between the plugin and the kernel (the linker's --wrap) and simulates behaviour that this
// kernel does not show over loopback. The sends, pages, numbers and reports are real.
#pragma once

#include "standard.h"

namespace nccltune::net {

struct KernelStandIn {
  // Simulated behaviour:
  std::atomic<bool> hides_copies = false;   // reports state that nothing was copied, as over a NIC
  std::atomic<bool> holds_reports = false;  // reports are held back, as while a NIC's queue is full
  std::atomic<int> option_error = 0;        // error of SO_ZEROCOPY
  std::atomic<int> send_error = 0;          // error of zero-copy sends,
  std::atomic<uint64_t> refuses_each = 1;   // for every n-th of them

  // Counted since the last reset:
  std::atomic<uint64_t> asked = 0;      // zero-copy sends
  std::atomic<uint64_t> taken = 0;      // sends that the kernel accepted
  std::atomic<uint64_t> reported = 0;   // sends that it reported
  std::atomic<uint64_t> looks = 0;      // reads of the error queue
  std::atomic<uint64_t> not_there = 0;  // reads that found no report
  std::atomic<uint64_t> blocked = 0;    // sends with a copy that a full socket did not take
};

// Counts how often the current thread yields its CPU, which it does while it waits for another
// thread.
class YieldCount {
 public:
  YieldCount();
  ~YieldCount();
  YieldCount(const YieldCount&) = delete;
  YieldCount& operator=(const YieldCount&) = delete;

  // Callable from any thread.
  uint64_t value() const { return value_.load(); }

 private:
  friend void CountYield();
  std::atomic<uint64_t> value_ = 0;
};

// Returns the instance of the program.
KernelStandIn& TheKernel();
// Resets to the kernel's real behaviour.
void ResetKernel();
// Returns whether a send from this memory is not reported yet. Unknown for a socket that was closed
// before its last report.
bool KernelHolds(const void* data, size_t bytes);

}  // namespace nccltune::net
