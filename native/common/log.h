// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "abi/nccl_types.h"

namespace nccltune {

// Writes log lines through NCCL's logger, each with a prefix. Without a logger, nothing is logged:
// a plugin must not print by itself.
class Log {
 public:
  // `prefix` must outlive the object. `subsystems` is a set of abi::kSubsys bits.
  Log(abi::LogFunction function, unsigned long subsystems, std::string_view prefix)
      : function_(function), subsystems_(subsystems), prefix_(prefix) {}

  void Warn(std::string_view text) const { Write(abi::kLogWarn, text); }
  void Info(std::string_view text) const { Write(abi::kLogInfo, text); }

  // Returns a log with the same logger and prefix, but for other subsystems.
  Log Only(unsigned long subsystems) const { return {function_, subsystems, prefix_}; }

  // Returns the logger; null if there is none.
  abi::LogFunction logger() const { return function_; }
  bool silent() const { return function_ == nullptr; }

 private:
  void Write(abi::LogLevel level, std::string_view text) const;

  abi::LogFunction function_;
  unsigned long subsystems_;
  std::string_view prefix_;
};

}  // namespace nccltune
