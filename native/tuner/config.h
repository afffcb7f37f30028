// SPDX-License-Identifier: Apache-2.0
// Parses the configuration file strictly: NVIDIA's CSV format, with our comment header.
// docs/reference/tuner-plugin.md describes the format and the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/nccl_version.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

// Parses our comment header in a configuration file, which names the platform of the measurements.

inline constexpr uint64_t kConfigSchema = 1;

struct ConfigHeader {
  std::optional<uint64_t> schema;
  std::optional<NcclVersion> nccl;
  std::optional<std::string> gpu;
  std::optional<std::string> driver;
  std::optional<std::string> study;
  std::optional<std::string> created;
  std::optional<std::string> end;  // "below": the file's last line states end=here
  bool has_end = false;
};

enum class HeaderLine { kNotOurs, kGood, kNote, kBad };

// Parses one line that starts with '#' and adds its values to `header`. The first value of a key is
// used. Unknown keys are for newer releases and are ignored. Returns kNotOurs for a comment that is
// not our header, kNote if the line is used but deserves a warning, and kBad if it is not valid.
// For kNote and kBad, `*problem` gets the reason.
HeaderLine ParseHeaderLine(std::string_view line, ConfigHeader* header, std::string* problem);

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

// The configuration file as this process uses it.

struct LoadedConfig {
  std::string path;
  std::string error;  // why the file cannot be read; empty if it was read
  bool empty = false;
  TunerConfig config;
  // The expected content hash (NCCLTUNE_CONFIG_HASH) is set, and the file has another content.
  bool has_other_content = false;
  std::shared_ptr<RuleHits> hits;  // null if the file has no rule
};

// Returns the file of this path. It is read once in a process: communicators that read it at
// different times must come to the same decisions. A file that looks as if it was being written is
// read again for some time. `expected_hash` is NCCLTUNE_CONFIG_HASH; empty if it is not set. Throws
// only std::bad_alloc.
std::shared_ptr<const LoadedConfig> LoadConfig(const std::string& path,
                                               const std::string& expected_hash);

// Makes the next call read the file again. For tests.
void ForgetConfig();

}  // namespace nccltune::tuner
