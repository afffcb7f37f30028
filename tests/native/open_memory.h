// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_OPEN_MEMORY_H_
#define NCCLTUNE_TESTS_OPEN_MEMORY_H_

#include "standard.h"

namespace nccltune {

// Returns the descriptors of this process's memfds of that name, found as another program finds
// them.
inline std::vector<int> OpenMemory(const std::string& name) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (file == "/memfd:" + name + " (deleted)") {
      found.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace nccltune

#endif  // NCCLTUNE_TESTS_OPEN_MEMORY_H_
