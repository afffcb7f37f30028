// SPDX-License-Identifier: Apache-2.0
#include "common/nccl_version.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/shared_library.h"
#include "common/text.h"

namespace nccltune {

std::optional<NcclVersion> NcclVersionFromCode(int code) {
  if (code < 1000) return std::nullopt;
  const int factor = code >= 10000 ? 10000 : 1000;
  return NcclVersion{code / factor, code % factor / 100, code % 100};
}

std::optional<NcclVersion> ParseNcclVersion(std::string_view text) {
  constexpr uint64_t kLargestPart = 999;
  std::array<int, 3> parts{};
  size_t count = 0;
  while (count < parts.size()) {
    const size_t dot = text.find('.');
    const std::optional<uint64_t> part = ParseUnsigned(text.substr(0, dot));
    if (!part || *part > kLargestPart) return std::nullopt;
    parts[count++] = static_cast<int>(*part);
    if (dot == std::string_view::npos) {
      if (count < 2) return std::nullopt;
      return NcclVersion{parts[0], parts[1], parts[2]};
    }
    text.remove_prefix(dot + 1);
  }
  return std::nullopt;
}

std::string ToString(const NcclVersion& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::optional<NcclVersion> LoadedNccl(const void* address) {
  using GetVersion = int(int* version);  // returns 0 on success
  const SharedLibrary nccl = SharedLibrary::Holding(address);
  const SharedLibrary global = SharedLibrary::Global();
  auto* get_version = nccl.Find<GetVersion>("ncclGetVersion");
  if (get_version == nullptr) get_version = global.Find<GetVersion>("ncclGetVersion");
  int code = 0;
  if (get_version == nullptr || get_version(&code) != 0) return std::nullopt;
  return NcclVersionFromCode(code);
}

}  // namespace nccltune
