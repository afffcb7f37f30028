// SPDX-License-Identifier: Apache-2.0
//
// What NCCL says that it enqueues. The program exports NCCL's profiler interface, NCCL finds it
// when told to look in the program itself (NCCL_PROFILER_PLUGIN=STATIC_PLUGIN), and its mask of
// events is zero but for the one call of a step that is looked at. So the timed calls pay what NCCL
// has for a profiler that wants nothing: a load and a test.
#ifndef NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
#define NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_

#include <optional>

#include "host/names.h"

namespace nccltune::bench {

struct ProbedCall {
  host::Combination combination;  // unknown for point-to-point
  int channels = 0;               // of several sends and receives the most
};

class CallProbe {
 public:
  // Makes NCCL load it. Before NCCL reads the environment. An NCCL_PROFILER_PLUGIN of "none" is
  // left alone, and then nothing is probed.
  static void Announce();

  // While one of these lives, calls of all threads are looked at.
  class Listening {
   public:
    Listening();
    ~Listening();
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
  };

  // What `rank`, of this process, enqueued last, and forgets it. To be asked when the call has
  // completed. Nothing under graph capture, where NCCL enqueues later.
  static std::optional<ProbedCall> Take(int rank);
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CALL_PROBE_H_
