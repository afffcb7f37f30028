// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_READELF_H_
#define NCCLTUNE_TESTS_READELF_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "program_output.h"

namespace nccltune {

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

#endif  // NCCLTUNE_TESTS_READELF_H_
