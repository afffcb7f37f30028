// SPDX-License-Identifier: Apache-2.0
//
// Records through NCCL's profiler interface which algorithm, protocol and channels NCCL uses for a
// call. The program itself exports the interface, and NCCL_PROFILER_PLUGIN=STATIC_PLUGIN makes NCCL
// look for it there. The event mask is zero except during the one observed call of a step. So each
// timed call costs NCCL only a load and a test of the mask.
#ifndef NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
#define NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_

#include <optional>

#include "host/names.h"

namespace nccltune::bench {

struct ProbedCall {
  host::Combination combination;  // unknown for point-to-point calls
  int channels = 0;               // if the call has several sends and receives: the largest number
};

class CallProbe {
 public:
  // Makes NCCL load the probe; must be called before NCCL reads the environment. Does nothing if
  // NCCL_PROFILER_PLUGIN is "none"; then no call is recorded.
  static void Announce();

  // While an object of this class exists, calls of all threads are recorded.
  class Listening {
   public:
    Listening();
    ~Listening();
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
  };

  // Returns and clears the last call that `rank`, a rank of this process, enqueued. Call Take after
  // that call has completed. Returns nullopt if no call was recorded: before NCCL 2.28, if the
  // probe is not loaded, and under graph capture, because NCCL then enqueues the call later.
  static std::optional<ProbedCall> Take(int rank);
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
