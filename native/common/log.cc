// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <algorithm>
#include <array>

namespace nccltune {
namespace {

// NCCL 2.21 limits a line to 1,024 bytes, including NCCL's own prefix of host, process and thread.
// 800 bytes leave room for that prefix.
constexpr size_t kLongestLine = 800;
constexpr std::string_view kCutMark = " ...";

}  // namespace

void Log::Write(abi::LogLevel level, std::string_view text) const {
  if (silent()) return;
  std::array<char, kLongestLine + 1> line{};
  const bool cut = prefix_.size() + text.size() > kLongestLine;
  const size_t room = kLongestLine - prefix_.size() - (cut ? kCutMark.size() : 0);
  char* end = std::copy(prefix_.begin(), prefix_.end(), line.data());
  text = text.substr(0, room);
  end = std::copy(text.begin(), text.end(), end);
  if (cut) end = std::copy(kCutMark.begin(), kCutMark.end(), end);
  *end = '\0';
  function_(level, subsystems_, "nccltune", 0, "%s", line.data());
}

}  // namespace nccltune
