// SPDX-License-Identifier: Apache-2.0
//
// Our comment header in a configuration: on what its rules were measured.
//   # nccltune: schema=1 nccl=2.28.9 gpu="NVIDIA H200" study="h200x4" created=2026-11-21
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
};

enum class HeaderLine { kNotOurs, kGood, kNote, kBad };

// Reads one line that starts with '#' and adds what it says to `header`. The first value of a key
// counts; unknown keys are for newer readers and are passed over. For kNote and kBad the reason is
// in `problem`.
HeaderLine ParseHeaderLine(std::string_view line, ConfigHeader* header, std::string* problem);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_CONFIG_HEADER_H_
