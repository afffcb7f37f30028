// SPDX-License-Identifier: Apache-2.0
//
// The configuration file: NVIDIA's CSV, read strictly, with our comment header.
// docs/reference/tuner-plugin.md describes both.
#ifndef NCCLTUNE_TUNER_CONFIG_H_
#define NCCLTUNE_TUNER_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/config_header.h"
#include "tuner/rule.h"

namespace nccltune::tuner {

// Larger files are not read, further rows are bad lines: what a communicator keeps is bounded.
inline constexpr size_t kLargestConfigBytes = size_t{32} << 20U;
inline constexpr size_t kMostRules = size_t{1} << 18U;

// NVIDIA's example plugin reads lines in pieces of this length and takes the rest for a row.
inline constexpr size_t kLongestLine = 255;

// A file of rubbish has a problem in each line; this many are kept, all are counted.
inline constexpr size_t kMostProblems = 16;

struct Problem {
  uint32_t line = 0;  // from 1
  bool bad = true;    // false: the line works and is still worth a warning
  std::string text;  // "column 4 (algorithm): 'NVLS' is not an algorithm; did you mean 'nvls'? ..."
};

struct Config {
  ConfigHeader header;
  std::vector<Rule> rules;  // in file order
  std::vector<Problem> problems;
  size_t bad_lines = 0;
  size_t notes = 0;  // problems that are not bad lines
  uint64_t content_hash = 0;
};

// Reads the content of a file. Any bytes give a result; throws std::bad_alloc only.
Config ParseConfig(std::string_view content);

// One row without its line end. False with the reason in `problem` when it is bad.
bool ParseRow(std::string_view row, Rule* rule, std::string* problem);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONFIG_H_
