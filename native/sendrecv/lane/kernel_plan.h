// SPDX-License-Identifier: Apache-2.0
// Plans and enqueues the kernels and copies of a group if streams wait by kernels
// (Policy::kernel_waits). The reasons for the order are in docs/design/sendrecv.md ("One
// connection").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sendrecv/cuda/driver.h"
#include "sendrecv/cuda/wait_kernels.h"
#include "sendrecv/lane/plan.h"

namespace nccltune::sendrecv {

// Streams of the library for kernels and copies of Policy::kernel_waits. A kernel behind an
// incomplete copy or kernel of its stream would hold up all kernels of the GPU, so a stream is used
// again only when its work is complete. Not thread-safe.
class HelperStreams {
 public:
  // Returns a stream without pending work. Returns null if CUDA refuses a new one.
  Stream Take(Driver& driver) {
    // The stream that was taken first is probably complete first.
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream stream = streams_[next_];
      next_ = (next_ + 1) % streams_.size();
      if (driver.IsComplete(stream)) return stream;
    }
    Stream made = driver.NewStream();
    if (made != nullptr) streams_.push_back(made);
    return made;
  }

  bool AreComplete(Driver& driver) const {
    return std::ranges::all_of(streams_, [&](Stream stream) { return driver.IsComplete(stream); });
  }

  void Delete(Driver& driver) {
    for (Stream stream : streams_) driver.DeleteStream(stream);
    streams_.clear();
    next_ = 0;
  }

  const std::vector<Stream>& all() const { return streams_; }

 private:
  std::vector<Stream> streams_;
  size_t next_ = 0;
};

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

// Enqueues the plan of a batch.
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
