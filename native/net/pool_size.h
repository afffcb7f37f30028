// SPDX-License-Identifier: Apache-2.0
//
// Derives the numbers of threads, flows and devices from the process's CPUs, for settings with the
// value "auto".
#ifndef NCCLTUNE_NET_POOL_SIZE_H_
#define NCCLTUNE_NET_POOL_SIZE_H_

#include <cstddef>

#include "net/net_settings.h"

namespace nccltune::net {

// Returns the number of threads of the pool: the setting, or 2 to 24 depending on `cpus`.
int PoolThreads(const NetSettings& settings, int cpus);
// Same, with the result of UsableCpus as `cpus`. UsableCpus is called only once.
int PoolThreads(const NetSettings& settings);

// Returns the number of bulk flows of a connection (TCP connections for large messages): the
// setting, or half of the threads, 2 to 8.
int FlowsOf(const NetSettings& settings, int threads);

// Return the number of devices per NIC for a host with `nics` NICs. The user's setting is not
// considered. Without `cpus`, the result of UsableCpus is used.
int DevicesOfNic(size_t nics, int cpus);
int DevicesOfNic(size_t nics);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_POOL_SIZE_H_
