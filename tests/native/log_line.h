// SPDX-License-Identifier: Apache-2.0
// What NCCL's logger makes of a format and its arguments.
#ifndef NCCLTUNE_TESTS_LOG_LINE_H_
#define NCCLTUNE_TESTS_LOG_LINE_H_

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "abi/nccl_types.h"

namespace nccltune {

inline std::string LogText(const char* format, va_list arguments) {
  std::array<char, 4096> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  return text.data();
}

inline std::string LevelName(abi::LogLevel level) {
  return level == abi::kLogWarn ? "WARN " : "INFO ";
}

}  // namespace nccltune

#endif  // NCCLTUNE_TESTS_LOG_LINE_H_
