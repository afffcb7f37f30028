// SPDX-License-Identifier: Apache-2.0
//
// What the processes tell each other so that none is left alone in a call that needs all.
#ifndef NCCLTUNE_BENCH_NCCL_AGREEMENT_H_
#define NCCLTUNE_BENCH_NCCL_AGREEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/exchange.h"

namespace nccltune::bench {

// What a process tells when it starts. With an error nothing else counts.
struct Introduction {
  std::optional<OpenError> error;
  std::string nccl_version;
  std::string host_hash;
  std::vector<std::string> gpu_ids;  // by rank; the same id is the same GPU
  int compute_capability = 0;        // the least of its GPUs, 90 for 9.0
};

// False if the run is ending.
bool Introduce(Exchange* exchange, const Introduction& mine, std::vector<Introduction>* all);

// What keeps these processes from making a communicator, the same for all: the first process's
// error, different versions of NCCL, a GPU that two ranks want.
std::optional<OpenError> Obstacle(const std::vector<Introduction>& all);

// What a step is told that the end of the run overtakes.
StepError Ending();

// All get the first process's error, if any has one. Ending() if the run is ending.
std::optional<StepError> Agree(Exchange* exchange, const std::optional<StepError>& mine);

// Of this host, and no way back to its name: the host name mixed with the boot's random number.
std::string HostHash();

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_AGREEMENT_H_
