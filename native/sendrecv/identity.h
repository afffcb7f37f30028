// SPDX-License-Identifier: Apache-2.0
// Identifies the process and the host of a rank, so that other ranks can compare them.
#pragma once

#include <cstdint>

namespace nccltune::sendrecv {

// A random number that identifies a process. A process id is not enough: two containers that share
// /dev/shm have separate PID namespaces, and both have a process 1. A forked child gets another
// token than its parent. A token of zeros identifies no process.
struct ProcessToken {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const ProcessToken&) const = default;
};

// Returns the token of this process, or zeros if the system has no random numbers.
ProcessToken ThisProcess();

// Returns a hash of NCCL_HOSTID, or 0 if it is not set. NCCL treats ranks with different values as
// being on different hosts. Ranks with equal values that share memory are on one host.
uint64_t ThisHost();

}  // namespace nccltune::sendrecv
