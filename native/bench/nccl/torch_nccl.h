// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
#define NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_

#include <string>

namespace nccltune::bench {

// The libnccl.so.2 that belongs to the PyTorch of the `python3` found first on the PATH; empty
// where there is no such Python, no PyTorch, or it uses the system's. Starts that Python for some
// ten milliseconds (ten seconds at most) and imports nothing there.
std::string FindTorchNccl();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
