// SPDX-License-Identifier: Apache-2.0
// The library's settings (common/settings.inc), as this process uses them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sendrecv/hooks/interpose.h"
#include "sendrecv/route.h"
#include "sendrecv/vccl/vccl.h"

namespace nccltune::sendrecv {

// The settings of one rank. Two ranks must have the same `dry_run`, `verify`, `policy.graphs`,
// `policy.kernel_waits`, `policy.vccl` and, with the vccl policy, `vccl`. Otherwise NCCL carries
// all messages between them.
struct SendRecvOptions {
  // A copy engine may carry messages of at least this many bytes. If streams wait by kernels the
  // second one counts (benchmarks/results/one-connection.md).
  uint64_t from = uint64_t{2} << 20;
  uint64_t from_with_kernel_waits = uint64_t{8} << 20;
  Policy policy;
  vccl::VcclSettings vccl;
  bool dry_run = false;
  bool verify = false;
  // Copy engines are also used on hardware on which the library was not tested.
  bool any_hardware = false;
  // Connections::count. 0: not limited.
  size_t connections = 0;
  // With one connection to the GPU, streams wait by kernels; else NCCL carries everything then.
  // Decides `policy.kernel_waits` when a communicator is created.
  bool kernels_with_one_connection = true;
};

// Returns the options of this process. An invalid value is reported as a warning, and the default
// of the setting is used.
SendRecvOptions ReadOptions(InterposeMode mode);

// Sets how streams wait with the connections that CUDA has got. Returns why NCCL must carry
// everything, or an empty text.
std::string AdaptToConnections(SendRecvOptions* options);

}  // namespace nccltune::sendrecv
