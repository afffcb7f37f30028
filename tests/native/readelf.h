// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_READELF_H_
#define NCCLTUNE_TESTS_READELF_H_

#include <gtest/gtest.h>

#include <cstdlib>
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

}  // namespace nccltune

#endif  // NCCLTUNE_TESTS_READELF_H_
