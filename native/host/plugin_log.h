// SPDX-License-Identifier: Apache-2.0
// Stands in for NCCL's logger and keeps what plugins say through it.
#ifndef NCCLTUNE_HOST_PLUGIN_LOG_H_
#define NCCLTUNE_HOST_PLUGIN_LOG_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "abi/tuner_types.h"

namespace nccltune::host {

struct LogLine {
  int level = 0;
  std::string text;
};

struct LogLines {
  std::vector<LogLine> lines;
  size_t dropped = 0;  // lines beyond the most that are kept
};

// "WARN" for 2, "INFO" for 3; "LEVEL 9" for a number that NCCL does not have.
std::string LogLevelName(int level);

// NCCL's logger has no argument that says whose line it is, so there is one log in a process; it
// may be written from any thread.
namespace plugin_log {

// The function that init hands to the plugin. Takes null pointers; cuts a line at 4 KiB.
abi::LogFunction Function();

// Also print each line to standard error as it comes.
void SetEcho(bool echo);

// The lines since the last call, oldest first, at most `kMostLines`.
LogLines Take();

inline constexpr size_t kMostLines = 2000;

}  // namespace plugin_log

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_PLUGIN_LOG_H_
