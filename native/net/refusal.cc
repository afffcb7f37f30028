// SPDX-License-Identifier: Apache-2.0
#include "net/refusal.h"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace nccltune::net {
namespace {

constinit std::atomic<abi::LogFunction> newest = nullptr;

}  // namespace

Log TakeLog(abi::LogFunction function) noexcept {
  newest.store(function, std::memory_order_relaxed);
  return NewestLog();
}

Log NewestLog() noexcept {
  return {newest.load(std::memory_order_relaxed), kLogSubsystems, kLogPrefix};
}

abi::Result Refuse(abi::Result result, const char* format, ...) noexcept {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (length > 0) NewestLog().Warn(text.data());
  return result;
}

abi::Result RefuseNull(const char* call, const char* what) noexcept {
  return Refuse(abi::kInvalidArgument, "%s: %s is null", call, what);
}

}  // namespace nccltune::net
