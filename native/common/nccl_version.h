// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// Decodes the number that ncclGetVersion returns: 22809 is 2.28.9, and 2804 is 2.8.4 (the form up
// to NCCL 2.8). Returns nothing for a number below 1000.
std::optional<NcclVersion> NcclVersionFromCode(int code);

// Parses "2.28.9" or "2.28". Returns nothing for other text.
std::optional<NcclVersion> ParseNcclVersion(std::string_view text);

std::string ToString(const NcclVersion& version);

// Returns the version of the NCCL in this process whose code contains `address`, such as that of
// its logger; of the program's NCCL if that is not known; nothing if there is none.
std::optional<NcclVersion> LoadedNccl(const void* address);

}  // namespace nccltune
