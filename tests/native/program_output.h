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

inline bool HaveReadelf() { return std::system("command -v readelf >/dev/null 2>&1") == 0; }

// The words of each line that readelf writes about a library.
inline std::vector<std::vector<std::string>> Readelf(const std::string& option,
                                                     const std::string& library) {
  const std::string command = "readelf --wide " + option + " " + library;
  const ProgramOutput output = RunLine(command);
  EXPECT_EQ(output.status, 0) << command;
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(output.text);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (std::string word; words >> word;) lines.back().push_back(word);
  }
  return lines;
}

// The names of the symbols that a library exports.
inline std::set<std::string> ExportedSymbols(const std::string& library) {
  std::set<std::string> exported;
  for (const std::vector<std::string>& words : Readelf("--dyn-syms", library)) {
    // Number, value, size, type, binding, visibility, section, name.
    if (words.size() < 8 || words[6] == "UND" || words[0] == "Num:") continue;
    EXPECT_NE(words[4], "UNIQUE") << words[7] << " would keep dlclose from unloading the library";
    exported.insert(words[7]);
  }
  return exported;
}

// Expects that a library needs only parts of libc: the loader, and libraries that were separate
// before glibc 2.34.
inline void ExpectLibcAlone(const std::string& library) {
  const std::set<std::string> allowed = {"[libc.so.6]", "[libpthread.so.0]", "[libdl.so.2]",
                                         "[ld-linux-x86-64.so.2]", "[ld-linux-aarch64.so.1]"};
  int needed = 0;
  for (const std::vector<std::string>& words : Readelf("--dynamic", library)) {
    if (words.size() < 2 || words[1] != "(NEEDED)") continue;
    ++needed;
    EXPECT_EQ(allowed.count(words.back()), 1U) << words.back();
  }
  EXPECT_GT(needed, 0);
}

}  // namespace nccltune
