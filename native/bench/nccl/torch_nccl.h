// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
#define NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_

#include <string>

namespace nccltune::bench {

// Returns the path of the libnccl.so.2 that belongs to the PyTorch of the first `python3` on PATH.
// Returns an empty string if there is no such Python or PyTorch, or if that PyTorch uses the
// system's library. Runs that Python for some tens of milliseconds (at most ten seconds) without
// importing its packages.
std::string FindTorchNccl();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
