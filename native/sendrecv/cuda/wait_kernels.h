// SPDX-License-Identifier: Apache-2.0
// The two kernels of the library, with which streams wait if all of them share one connection to
// the GPU. Each has one warp. The code is in wait_kernels.cu, and as PTX in wait_kernels.inc. The
// order in which a group launches them is in kernel_plan.h, the reasons are in
// docs/design/sendrecv.md ("One connection").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sendrecv/cuda/driver.h"

namespace nccltune::sendrecv {

// How long the kernels wait, in nanoseconds.
struct WaitLimits {
  // A pull that holds up a later group waits this long for its sender. It would delay other pulls,
  // because a copy engine runs the copies of a GPU in their order.
  uint64_t held_up_ns = 20'000'000;
  // Any other pull waits this long for its sender. The application's own copies may be behind it.
  uint64_t alone_ns = 2'000'000'000;
  // After this time a kernel ends in any case and the communicator fails. NCCL has no such limit,
  // so it is longer than any program waits.
  uint64_t longest_ns = 24ULL * 3600 * 1'000'000'000;
};

// The kernel in front of a pull, in a stream of its own. It ends when the application's stream has
// reached the receive and the sender's stream has reached the send. If the sender is late, it gives
// way: the pull then copies bytes that nobody reads, and the exchange kernel copies the message
// later.
struct GateKernel {
  // Address of the GPU's counter of started groups, and the number of this group. A higher count
  // means that a later group has started. Set by the driver and at the launch.
  uint64_t started = 0;
  uint64_t start = 0;
  Flag* begun = nullptr;  // gets `begun_value` when this group starts
  Flag* ready = nullptr;
  Flag* late = nullptr;     // gets `value` if the kernel gives way
  Flag* held_up = nullptr;  // gets 1 if it gives way to a later group
  Flag* expired = nullptr;  // gets 1 after `longest_ns`
  WaitLimits limits;
  uint32_t value = 0;
  uint32_t begun_value = 0;
};

// The kernel in the application's stream: it announces that the stream has reached the group, and
// waits until all bytes are copied.
struct ExchangeKernel {
  static constexpr size_t kMostRaises = 32;
  static constexpr size_t kMostWaits = 64;
  static constexpr size_t kMostPulls = 32;  // one for each thread

  struct Value {
    Flag* flag = nullptr;
    uint32_t value = 0;
    uint32_t reserved = 0;
  };
  // A message that a copy engine pulls. When `copied` has `value`, the copy has run. If then `late`
  // has `value` as well, the kernel waits for `ready` and copies the bytes itself. It then writes
  // `done`.
  struct Pull {
    Flag* copied = nullptr;
    Flag* late = nullptr;
    Flag* ready = nullptr;
    Flag* done = nullptr;
    DeviceAddress to = 0;
    DeviceAddress from = 0;
    uint64_t bytes = 0;
    uint32_t value = 0;
    uint32_t reserved = 0;
  };

  uint64_t started = 0;  // as in GateKernel
  uint64_t start = 0;    // 0: the group has started before
  Flag* expired = nullptr;
  uint64_t longest_ns = 0;
  uint32_t raise_count = 0;
  uint32_t wait_count = 0;
  uint32_t pull_count = 0;
  uint32_t collected_count = 0;           // 0 or 1
  Value collected;                        // written at the end
  std::array<Value, kMostRaises> raises;  // written at the begin
  std::array<Value, kMostWaits> waits;
  std::array<Pull, kMostPulls> pulls;
};

// A far-ahead flag (kFarAhead) ends a wait without the peer. The kernel does not copy then.
inline constexpr uint32_t kReleased = kFarAhead / 2;

// The layout is that of the kernels' parameters. CUDA allows 4096 bytes.
static_assert(sizeof(Flag) == 4 && sizeof(WaitLimits) == 24);
static_assert(sizeof(GateKernel) == 88 && offsetof(GateKernel, limits) == 56);
static_assert(offsetof(ExchangeKernel, raise_count) == 32);
static_assert(offsetof(ExchangeKernel, collected) == 48 && offsetof(ExchangeKernel, raises) == 64);
static_assert(offsetof(ExchangeKernel, waits) == 64 + 512);
static_assert(offsetof(ExchangeKernel, pulls) == 64 + 512 + 1024);
static_assert(sizeof(ExchangeKernel::Pull) == 64);
static_assert(sizeof(ExchangeKernel) == 64 + 512 + 1024 + 2048 && sizeof(ExchangeKernel) <= 4096);

inline constexpr unsigned kWaitKernelThreads = 32;
inline constexpr const char* kGateKernelName = "nccltune_gate";
inline constexpr const char* kExchangeKernelName = "nccltune_exchange";

}  // namespace nccltune::sendrecv
