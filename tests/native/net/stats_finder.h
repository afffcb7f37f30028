// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_NET_STATS_FINDER_H_
#define NCCLTUNE_TESTS_NET_STATS_FINDER_H_

#include <vector>

#include "net/stats_page.h"
#include "open_memory.h"

namespace nccltune::net {

// Finds the statistics pages of this process.
inline std::vector<int> OpenStats() { return OpenMemory(kStatsName); }

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_STATS_FINDER_H_
