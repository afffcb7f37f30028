// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_WORLD_H_
#define NCCLTUNE_BENCH_WORLD_H_

namespace nccltune::bench {

// This process among all of one run. A rank in NCCL's sense is a GPU: process p has the ranks from
// p * gpus_per_process on.
struct World {
  int process = 0;           // what launchers call its rank
  int processes = 1;         // what launchers call the size
  int local_process = 0;     // among the processes of this host
  int gpus_per_process = 1;  // GPUs, threads and ranks of each process
  int emulated_nodes = 0;    // 0: the nodes are what they are

  int ranks() const { return processes * gpus_per_process; }
  int first_rank() const { return process * gpus_per_process; }
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WORLD_H_
