// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_NCCL_VERSION_H_
#define NCCLTUNE_COMMON_NCCL_VERSION_H_

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace nccltune {

struct NcclVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const NcclVersion&) const = default;
};

// What ncclGetVersion reports: 22809 is 2.28.9 (through 2.8 it was 2804 for 2.8.4). Empty for
// numbers that are no version.
std::optional<NcclVersion> NcclVersionFromCode(int code);

// "2.28.9" or "2.28".
std::optional<NcclVersion> ParseNcclVersion(std::string_view text);

std::string ToString(const NcclVersion& version);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_NCCL_VERSION_H_
