// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_WORLD_H_
#define NCCLTUNE_BENCH_WORLD_H_

#include <cstdint>

namespace nccltune::bench {

// The place of this process in the run. A rank in NCCL's sense is a GPU: process p has
// `gpus_per_process` ranks, starting at p * gpus_per_process.
struct World {
  int process = 0;           // index of this process; launchers call it the rank
  int processes = 1;         // number of processes; launchers call it the size
  int local_process = 0;     // index among the processes of this host
  int gpus_per_process = 1;  // number of GPUs of each process, each with one thread and one rank
  int emulated_nodes = 0;    // 0: no emulation, each host is a node
  int ranks_per_gpu = 1;     // number of consecutive processes of a host that share a GPU

  // The emulated node of a process; 0 without emulation.
  int NodeOf(int each) const {
    return static_cast<int>(int64_t{each} * emulated_nodes / processes);
  }
  int ranks() const { return processes * gpus_per_process; }
  int first_rank() const { return process * gpus_per_process; }
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WORLD_H_
