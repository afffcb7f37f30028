// SPDX-License-Identifier: Apache-2.0
//
// Finds the statistics pages of this process in the way another program does.
#ifndef NCCLTUNE_TESTS_NET_STATS_FINDER_H_
#define NCCLTUNE_TESTS_NET_STATS_FINDER_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace nccltune::net {

inline std::vector<int> OpenStats() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (file == "/memfd:nccltune-net-stats (deleted)") {
      found.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_STATS_FINDER_H_
