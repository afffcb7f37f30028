// SPDX-License-Identifier: Apache-2.0
//
// Learns from NCCL's profiler interface what NCCL enqueues. The program itself exports the
// interface, and NCCL_PROFILER_PLUGIN=STATIC_PLUGIN makes NCCL look for it there. The event mask is
// zero except during the one observed call of a step. So each timed call costs NCCL only a load and
// a test of the mask.
#ifndef NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
#define NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_

#include <optional>

#include "host/names.h"

namespace nccltune::bench {

struct ProbedCall {
  host::Combination combination;  // unknown for point-to-point calls
  int channels = 0;               // of several sends and receives: the largest number
};

class CallProbe {
 public:
  // Makes NCCL load the probe; must be called before NCCL reads the environment. If
  // NCCL_PROFILER_PLUGIN is "none", it stays so and nothing is probed.
  static void Announce();

  // While an object of this class exists, calls of all threads are recorded.
  class Listening {
   public:
    Listening();
    ~Listening();
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
  };

  // Returns and clears the last call that `rank`, a rank of this process, enqueued. Ask after the
  // call has completed. Returns nullopt under graph capture, where NCCL enqueues later.
  static std::optional<ProbedCall> Take(int rank);
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
