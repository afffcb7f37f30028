// SPDX-License-Identifier: Apache-2.0
//
// Enqueues the kernels and copies of a batch that waits by kernels, as kernel_plan.h has planned
// them.
#ifndef NCCLTUNE_SENDRECV_KERNEL_RUN_H_
#define NCCLTUNE_SENDRECV_KERNEL_RUN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "sendrecv/driver.h"
#include "sendrecv/helper_streams.h"
#include "sendrecv/kernel_plan.h"
#include "sendrecv/plan.h"
#include "sendrecv/wait_kernels.h"

namespace nccltune::sendrecv {

class KernelRun {
 public:
  KernelRun(std::span<const MessageTransfer> transfers, bool split, const WaitLimits& limits);

  // Enqueues what comes before NCCL's calls. Returns false if CUDA refuses. Then no kernel that was
  // enqueued waits for the rest, once the lanes are broken.
  bool EnqueueBefore(Driver& driver, Stream stream, HelperStreams& helpers);
  bool EnqueueAfter(Driver& driver, Stream stream);

 private:
  bool LaunchGates(Driver& driver, HelperStreams& helpers, uint64_t start);
  bool LaunchStarts(Driver& driver, Stream stream, uint64_t start);
  bool EnqueueCopies(Driver& driver);

  KernelPlan plan_;
  std::vector<Stream> streams_;  // by pull
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_KERNEL_RUN_H_
