// SPDX-License-Identifier: Apache-2.0
// Exchanges between the processes before a collective call. With them, no process waits in the call
// while another process cannot make the call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"

namespace nccltune::bench {

// What each process sends to the others at the start. If `error` is set, the other members are
// unused.
struct Introduction {
  std::optional<OpenError> error;
  std::string nccl_version;
  std::string host_hash;
  std::vector<std::string> gpu_ids;  // UUIDs of the process's GPUs, in rank order
  int compute_capability = 0;        // the lowest of these GPUs, times ten: 90 is 9.0
};

// Exchanges the introductions of all processes. Returns false if the run is ending.
bool Introduce(ProcessExchange* exchange, const Introduction& mine, std::vector<Introduction>* all);

// Returns the reason why these processes cannot create a communicator; nullopt if they can. All
// processes get the same reason: the first process's error, different NCCL versions, or more ranks
// on one GPU than the run or NCCL allows.
std::optional<OpenError> FindOpenError(const std::vector<Introduction>& all, const World& world);

// Returns the error for a step that cannot complete because the run ends.
StepError RunEndedError();

// Returns in every process the error of the first process that has an error; nullopt if none has.
// Returns RunEndedError() if the run is ending.
std::optional<StepError> ShareFirstError(ProcessExchange* exchange,
                                         const std::optional<StepError>& mine);

// Returns an id of this host that does not reveal the host name. The id is a hash of the host name
// and the kernel's boot id, which is a new random number after each boot.
std::string HostHash();

}  // namespace nccltune::bench
