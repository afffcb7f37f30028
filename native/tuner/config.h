// SPDX-License-Identifier: Apache-2.0
//
// Parses the configuration file strictly: NVIDIA's CSV format, with our comment header.
// docs/reference/tuner-plugin.md describes the format and the header.
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

// Limits that bound the memory of a communicator. A larger file is not read. Rows beyond the limit
// are bad lines.
inline constexpr size_t kLargestConfigBytes = size_t{32} << 20U;
inline constexpr size_t kMostRules = size_t{1} << 18U;

// NVIDIA's example plugin reads lines in pieces of this length. It would parse the rest of a longer
// line as another row.
inline constexpr size_t kLongestLine = 255;

// A wrong file may have a problem in each line. Only this many problems are stored, but all are
// counted.
inline constexpr size_t kMostProblems = 16;

struct Problem {
  uint32_t line = 0;  // counted from 1
  bool bad = true;    // false: the line is used but deserves a warning
  std::string text;  // "column 4 (algorithm): 'NVLS' is not an algorithm; did you mean 'nvls'? ..."
};

struct TunerConfig {
  ConfigHeader header;
  std::vector<Rule> rules;  // in file order
  std::vector<Problem> problems;
  size_t bad_lines = 0;
  size_t notes = 0;  // lines that are used but deserve a warning
  uint64_t content_hash = 0;
  bool open_end = false;  // the last line is a row without a line end, which counts as a bad line

  // Returns whether the file is only the first part of what was written.
  bool cut_off() const { return header.end == "below" && !header.has_end; }
};

// Parses the content of a file. Accepts any bytes; throws only std::bad_alloc.
TunerConfig ParseConfig(std::string_view content);

// Parses one row without its line end. Returns false and sets `*problem` if the row is not valid.
bool ParseRow(std::string_view row, Rule* rule, std::string* problem);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONFIG_H_
