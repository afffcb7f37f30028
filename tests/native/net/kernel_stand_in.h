// SPDX-License-Identifier: Apache-2.0
//
// Between the plugin and the kernel (the linker's --wrap): plays what the kernel of this machine
// does not do on a loopback. The sends, their pages, numbers and reports are the kernel's own.
#ifndef NCCLTUNE_TESTS_NET_KERNEL_STAND_IN_H_
#define NCCLTUNE_TESTS_NET_KERNEL_STAND_IN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nccltune::net {

struct KernelStandIn {
  // To be played.
  std::atomic<bool> hides_copies = false;   // reports say that nothing was copied, as over a NIC
  std::atomic<bool> holds_reports = false;  // there are none yet, as while a NIC's queue is full
  std::atomic<int> option_error = 0;        // of SO_ZEROCOPY
  std::atomic<int> send_error = 0;          // of sends without a copy,
  std::atomic<uint64_t> refuses_each = 1;   // each so manieth of them

  // Seen since the last reset.
  std::atomic<uint64_t> asked = 0;      // sends without a copy
  std::atomic<uint64_t> taken = 0;      // those that the kernel took
  std::atomic<uint64_t> reported = 0;   // and those that it reported
  std::atomic<uint64_t> looks = 0;      // for reports
  std::atomic<uint64_t> not_there = 0;  // looks that found none
};

// Of the whole program.
KernelStandIn& TheKernel();
// The kernel as it is.
void ResetKernel();
// A send out of this memory is not reported. Of a socket that was closed before it had told all,
// nobody can know.
bool KernelHolds(const void* data, size_t bytes);

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_KERNEL_STAND_IN_H_
