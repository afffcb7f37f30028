// SPDX-License-Identifier: Apache-2.0
// Whether copy engines may use the memory of another GPU: by NCCL's switches, by the link between
// the two GPUs, and by the hardware on which this library was tested. Where NCCL would not use
// direct access, this library does not use it either.
#pragma once

#include <string>

#include "common/cuda_api.h"

namespace nccltune::sendrecv {

// Returns the setting of NCCL with which this process uses no direct access to any other GPU, or an
// empty text. NCCL keeps the first values of its settings, and so does this library.
std::string WhyNoDirectAccess();

// A GPU, and what is known about its rank.
struct GpuOfRank {
  cu::Uuid uuid = {};
  bool same_process = false;
};

struct DirectAccess {
  std::string refused;  // why NCCL carries all messages; empty if copy engines may
  // Whether this library pushes, which requires that a flag in host memory never overtakes the
  // bytes. Over NVLink this was tested. Over PCIe the two have different targets.
  bool may_push = false;
};

// Returns what copy engines of the GPU `mine` may do with the memory of a peer's GPU. Both ranks
// usually get the same result. If not, the lane's gate (gate.h) stays shut. With `any_hardware`,
// untested hardware is not refused.
DirectAccess AccessTo(const cu::Api& api, cu::Device device, const cu::Uuid& mine,
                      const GpuOfRank& peer, bool any_hardware);

}  // namespace nccltune::sendrecv
