// SPDX-License-Identifier: Apache-2.0
//
// How many threads and flows "auto" is.
#ifndef NCCLTUNE_NET_POOL_SIZE_H_
#define NCCLTUNE_NET_POOL_SIZE_H_

#include "net/net_settings.h"

namespace nccltune::net {

// Threads of the process's pool: as set, else three for four of `cpus`, 2 to 24.
int PoolThreads(const NetSettings& settings, int cpus);
// With the CPUs that the process might use when it first asked.
int PoolThreads(const NetSettings& settings);

// Bulk flows of a connection: as set, else as many as the pool has threads, 2 to 8.
int FlowsOf(const NetSettings& settings, int threads);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_POOL_SIZE_H_
