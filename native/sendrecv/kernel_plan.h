// SPDX-License-Identifier: Apache-2.0
//
// Plans the kernels and copies of a group if streams wait by kernels (Policy::kernel_waits). Calls
// neither CUDA nor NCCL. The reasons for the order are in docs/design/sendrecv.md ("One
// connection").
#ifndef NCCLTUNE_SENDRECV_KERNEL_PLAN_H_
#define NCCLTUNE_SENDRECV_KERNEL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sendrecv/driver.h"
#include "sendrecv/plan.h"
#include "sendrecv/wait_kernels.h"

namespace nccltune::sendrecv {

// The order in streams: the gates of `pulls`, `starts`, the copies of `pulls`, `collectors`. Then
// NCCL's calls, then `waits`. Each gate has a stream of its own. Each of `collectors` has one as
// well.
struct KernelPlan {
  // A gate, and the copy behind it in the same stream, with the write of `copied`.
  struct Pull {
    GateKernel gate;
    MessageSlot* slot = nullptr;
    DeviceAddress to = 0;
    DeviceAddress from = 0;
    uint64_t bytes = 0;
  };
  std::vector<Pull> pulls;
  // In the application's stream. All but the last end at once. The last one also waits if the group
  // needs no other kernel.
  std::vector<ExchangeKernel> starts;
  // Complete what the kernels of the application's stream have no room or no time for.
  std::vector<ExchangeKernel> collectors;
  // In the application's stream; empty or one kernel. Two kernels that wait in one stream would
  // hold up all later kernels.
  std::vector<ExchangeKernel> waits;
};

// Returns the plan of a group. `split` is true if NCCL carries some calls of the group, or if the
// group has messages in other streams: then no kernel may wait before all have been started.
KernelPlan MakeKernelPlan(std::span<const MessageTransfer> transfers, bool split,
                          const WaitLimits& limits);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_KERNEL_PLAN_H_
