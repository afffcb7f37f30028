// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/kernel_run.h"

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace nccltune::sendrecv {

KernelRun::KernelRun(std::span<const MessageTransfer> transfers, bool split,
                     const WaitLimits& limits)
    : plan_(MakeKernelPlan(transfers, split, limits)) {
  // The exchange kernel copies these messages. The next ones of their lanes are NCCL's.
  for (const MessageTransfer& transfer : transfers) {
    if (!transfer.by_kernel) continue;
    transfer.slot->late.store(transfer.value);
    transfer.slot->copied.store(transfer.value);
    transfer.lane_memory->held_up.store(1);
  }
}

bool KernelRun::EnqueueBefore(Driver& driver, Stream stream, HelperStreams& helpers) {
  if (plan_.starts.empty()) return true;
  // Copies are enqueued in the order in which their groups start.
  const std::scoped_lock lock(driver.starts().mutex);
  const uint64_t start = ++driver.starts().last;
  if (!LaunchGates(driver, helpers, start) || !LaunchStarts(driver, stream, start)) {
    // Gates without a group end. No copies are behind them.
    for (const KernelPlan::Pull& pull : plan_.pulls) pull.gate.begun->store(pull.gate.begun_value);
    return false;
  }
  // A gate may be complete as soon as the group has started. So its copy must be behind it before
  // another stream is taken for a collector, which waits for that copy.
  return EnqueueCopies(driver) &&
         std::ranges::all_of(plan_.collectors, [&](const ExchangeKernel& collector) {
           Stream helper = helpers.Take(driver);
           return helper != nullptr && driver.LaunchExchange(helper, collector);
         });
}

// Gates come before the kernel for whose start they wait. Another thread may launch a kernel behind
// that one, and a gate behind such a kernel would not start.
bool KernelRun::LaunchGates(Driver& driver, HelperStreams& helpers, uint64_t start) {
  return std::ranges::all_of(plan_.pulls, [&](KernelPlan::Pull& pull) {
    pull.gate.start = start;
    streams_.push_back(helpers.Take(driver));
    return streams_.back() != nullptr && driver.LaunchGate(streams_.back(), pull.gate);
  });
}

bool KernelRun::LaunchStarts(Driver& driver, Stream stream, uint64_t start) {
  return std::ranges::all_of(plan_.starts, [&](ExchangeKernel& kernel) {
    if (kernel.start != 0) kernel.start = start;
    return driver.LaunchExchange(stream, kernel);
  });
}

bool KernelRun::EnqueueCopies(Driver& driver) {
  for (size_t i = 0; i < plan_.pulls.size(); ++i) {
    const KernelPlan::Pull& pull = plan_.pulls[i];
    if (!driver.Copy(streams_[i], pull.to, pull.from, pull.bytes) ||
        !driver.WriteValue(streams_[i], pull.slot->copied, pull.gate.value)) {
      return false;
    }
  }
  return true;
}

bool KernelRun::EnqueueAfter(Driver& driver, Stream stream) {
  return std::ranges::all_of(plan_.waits, [&](const ExchangeKernel& kernel) {
    return driver.LaunchExchange(stream, kernel);
  });
}

}  // namespace nccltune::sendrecv
