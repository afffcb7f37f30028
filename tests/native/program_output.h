// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "testing.h"

namespace nccltune {

struct ProgramOutput {
  std::string text;
  int status = -1;  // as pclose returns it
};

// Runs a shell command. Returns its standard output and its status.
inline ProgramOutput RunLine(const std::string& line) {
  ProgramOutput output;
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.text.append(buffer.data(), n);
  }
  output.status = pclose(pipe);
  return output;
}

// Runs a shell command. Returns its standard output and standard error, and as a last line its
// status if that is not 0.
inline std::string AllOutputOf(const std::string& line) {
  ProgramOutput output = RunLine(line + " 2>&1");
  if (output.status != 0) output.text += "status " + std::to_string(output.status) + "\n";
  return output.text;
}

// By name.
using Environment = std::map<std::string, std::string>;
// The value of a variable that the command must not have.
inline constexpr const char* kUnset = "(unset)";

// Returns a shell command that runs `command` with these variables. If the command is a test
// program, it runs as a whole, even if this program is a shard.
inline std::string InEnvironment(const Environment& environment, const std::string& command) {
  std::string unset = " -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX";
  std::string set;
#ifdef NCCLTUNE_SANITIZED
  // A preloaded library comes before the sanitizer's runtime.
  set += " ASAN_OPTIONS=verify_asan_link_order=0";
#endif
  for (const auto& [name, value] : environment) {
    if (value == kUnset) {
      unset += " -u " + name;
    } else {
      set += " " + name + "='" + value + "'";
    }
  }
  return "env" + unset + set + " " + command;
}

inline int CountIn(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace nccltune
