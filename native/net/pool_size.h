// SPDX-License-Identifier: Apache-2.0
//
// The values of "auto": threads, flows and devices, derived from the process's CPUs.
#ifndef NCCLTUNE_NET_POOL_SIZE_H_
#define NCCLTUNE_NET_POOL_SIZE_H_

#include <cstddef>

#include "net/net_settings.h"

namespace nccltune::net {

// Returns the number of threads of the pool: the setting, or 2 to 24 depending on `cpus`.
int PoolThreads(const NetSettings& settings, int cpus);
// The same with UsableCpus, which is read once.
int PoolThreads(const NetSettings& settings);

// Returns the number of bulk flows of a connection: the setting, or half of the threads, 2 to 8.
int FlowsOf(const NetSettings& settings, int threads);

// Returns the number of devices per NIC if no setting names one.
int DevicesOfNic(size_t nics, int cpus);
int DevicesOfNic(size_t nics);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_POOL_SIZE_H_
