// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
#define NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_

#include <string>

namespace nccltune::bench {

// Returns the path of the libnccl.so.2 that belongs to the PyTorch of the first `python3` on PATH.
// It is empty if there is no such Python or PyTorch, or if that PyTorch uses the system's library.
// It runs that Python for some tens of milliseconds (at most ten seconds) and imports no package of
// it.
std::string FindTorchNccl();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_TORCH_NCCL_H_
