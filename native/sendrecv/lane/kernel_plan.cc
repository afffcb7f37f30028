// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/kernel_plan.h"

#include <mutex>

namespace nccltune::sendrecv {
namespace {

using Value = ExchangeKernel::Value;

constexpr size_t kMostRaises = ExchangeKernel::kMostRaises;
constexpr size_t kMostWaits = ExchangeKernel::kMostWaits;
constexpr size_t kMostPulls = ExchangeKernel::kMostPulls;

class KernelPlanner {
 public:
  KernelPlanner(std::span<const MessageTransfer> transfers, const WaitLimits& limits)
      : limits_(limits) {
    for (const MessageTransfer& transfer : transfers) {
      (transfer.kind == MessageTransfer::Kind::kCopy ? receives_ : sends_).push_back(&transfer);
    }
  }

  KernelPlan Make(bool split) {
    KernelPlan plan;
    if (sends_.empty() && receives_.empty()) return plan;
    for (const MessageTransfer* each : receives_) {
      if (!each->by_kernel) plan.pulls.push_back(PullOf(*each));
    }
    const std::vector<Value> raises = Raises();
    const bool one = !split && raises.size() <= kMostRaises && receives_.size() <= kMostPulls;
    AddStarts(raises, &plan);
    if (one) {
      AddPulls(0, receives_.size(), &plan.starts.back());
      for (const MessageTransfer* each : sends_) AddWait(Done(*each), &plan.starts.back());
      return plan;
    }
    const bool direct = sends_.size() + receives_.size() <= kMostWaits;
    ExchangeKernel last = Empty();
    for (size_t at = 0; at < receives_.size(); at += kMostPulls) {
      ExchangeKernel collector = Empty();
      AddPulls(at, std::min(at + kMostPulls, receives_.size()), &collector);
      if (!direct) Collect(*receives_[at], &collector, &last);
      plan.collectors.push_back(collector);
    }
    for (size_t at = 0; !direct && at < sends_.size(); at += kMostWaits) {
      ExchangeKernel collector = Empty();
      for (size_t i = at; i < std::min(at + kMostWaits, sends_.size()); ++i) {
        AddWait(Done(*sends_[i]), &collector);
      }
      Collect(*sends_[at], &collector, &last);
      plan.collectors.push_back(collector);
    }
    if (direct) {
      for (const MessageTransfer* each : receives_) AddWait(Done(*each), &last);
      for (const MessageTransfer* each : sends_) AddWait(Done(*each), &last);
    }
    plan.waits.push_back(last);
    return plan;
  }

 private:
  static Value Done(const MessageTransfer& transfer) {
    return {.flag = transfer.done, .value = transfer.value};
  }
  static void AddWait(const Value& value, ExchangeKernel* kernel) {
    kernel->waits[kernel->wait_count++] = value;
  }

  ExchangeKernel Empty() const {
    ExchangeKernel kernel;
    LaneMemory& lane = *(sends_.empty() ? receives_ : sends_).front()->lane_memory;
    kernel.expired = &lane.expired;
    kernel.longest_ns = limits_.longest_ns;
    return kernel;
  }

  KernelPlan::Pull PullOf(const MessageTransfer& transfer) const {
    KernelPlan::Pull pull = {.gate = {},
                             .slot = transfer.slot,
                             .to = transfer.to,
                             .from = transfer.from,
                             .bytes = transfer.bytes};
    pull.gate.ready = transfer.ready;
    pull.gate.late = &transfer.slot->late;
    pull.gate.held_up = &transfer.lane_memory->held_up;
    pull.gate.begun = &receives_.front()->slot->begun;
    pull.gate.begun_value = receives_.front()->value;
    pull.gate.expired = &transfer.lane_memory->expired;
    pull.gate.limits = limits_;
    // A copy within the GPU is done by SMs. While it waits, it holds up all later kernels.
    if (transfer.same_gpu) pull.gate.limits.alone_ns = limits_.held_up_ns;
    pull.gate.value = transfer.value;
    return pull;
  }

  // What is announced when the stream reaches the group: its start, for its gates, and its sends.
  std::vector<Value> Raises() const {
    std::vector<Value> raises;
    if (!receives_.empty()) {
      raises.push_back(
          {.flag = &receives_.front()->slot->begun, .value = receives_.front()->value});
    }
    for (const MessageTransfer* each : sends_) {
      raises.push_back({.flag = each->ready, .value = each->value});
    }
    return raises;
  }

  void AddStarts(const std::vector<Value>& raises, KernelPlan* plan) const {
    for (size_t at = 0; at < raises.size(); at += kMostRaises) {
      ExchangeKernel kernel = Empty();
      kernel.start = at == 0 ? 1 : 0;
      for (size_t i = at; i < std::min(at + kMostRaises, raises.size()); ++i) {
        kernel.raises[kernel.raise_count++] = raises[i];
      }
      plan->starts.push_back(kernel);
    }
  }

  void AddPulls(size_t begin, size_t end, ExchangeKernel* kernel) const {
    for (size_t i = begin; i < end; ++i) {
      const MessageTransfer& transfer = *receives_[i];
      kernel->pulls[kernel->pull_count++] = {.copied = &transfer.slot->copied,
                                             .late = &transfer.slot->late,
                                             .ready = transfer.ready,
                                             .done = transfer.done,
                                             .to = transfer.to,
                                             .from = transfer.from,
                                             .bytes = transfer.bytes,
                                             .value = transfer.value};
    }
  }

  // Makes a collector write a flag for which the last kernel waits.
  static void Collect(const MessageTransfer& transfer, ExchangeKernel* collector,
                      ExchangeKernel* last) {
    collector->collected = {.flag = &transfer.slot->collected[static_cast<size_t>(transfer.role)],
                            .value = transfer.value};
    collector->collected_count = 1;
    AddWait(collector->collected, last);
  }

  const WaitLimits& limits_;
  std::vector<const MessageTransfer*> sends_;
  std::vector<const MessageTransfer*> receives_;
};

}  // namespace

KernelPlan MakeKernelPlan(std::span<const MessageTransfer> transfers, bool split,
                          const WaitLimits& limits) {
  return KernelPlanner(transfers, limits).Make(split);
}

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
