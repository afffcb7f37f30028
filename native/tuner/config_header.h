// SPDX-License-Identifier: Apache-2.0
//
// Parses our comment header in a configuration file, which names the platform of the measurements.
#ifndef NCCLTUNE_TUNER_CONFIG_HEADER_H_
#define NCCLTUNE_TUNER_CONFIG_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/nccl_version.h"

namespace nccltune::tuner {

inline constexpr uint64_t kConfigSchema = 1;

struct ConfigHeader {
  std::optional<uint64_t> schema;
  std::optional<NcclVersion> nccl;
  std::optional<std::string> gpu;
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

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONFIG_HEADER_H_
