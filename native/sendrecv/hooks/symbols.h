// SPDX-License-Identifier: Apache-2.0
// NCCL's functions in the order of symbols.txt, which is also the order of the trampolines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace nccltune::sendrecv {

enum class Returns : uint8_t { kResult, kText, kNumber, kTeam, kNothing };

struct Symbol {
  const char* name;
  Returns returns;
};

#define SYMBOL(name, returns) Symbol{#name, Returns::returns},
inline constexpr std::array kSymbols = {
#include "symbols.inc"
};
#undef SYMBOL

inline std::optional<size_t> NumberOfSymbol(std::string_view name) {
  for (size_t number = 0; number < kSymbols.size(); ++number) {
    if (name == kSymbols[number].name) return number;
  }
  return std::nullopt;
}

// Returns whether the function is a trampoline of this library or of another copy of this library.
// Each trampoline has the mark `nccltune` before its code.
inline bool IsTrampoline(const void* function) {
  constexpr std::string_view kMark = "nccltune";
  const auto address = reinterpret_cast<uintptr_t>(function);
  // A trampoline is aligned, so its mark is on the same page as its code and can be read.
  if (address % 32 != kMark.size()) return false;
  return std::memcmp(reinterpret_cast<const void*>(address - kMark.size()), kMark.data(),
                     kMark.size()) == 0;
}

// Substitute functions, for use where the real NCCL lacks a function or no NCCL was found.
//
// Returns a substitute for a function that the real NCCL lacks. `returns` is the type of its
// result: for a result code the substitute returns ncclInvalidUsage, for a text an error text, for
// a number or a team zeros.
void* SubstituteForMissing(Returns returns);

// Returns a substitute for any function if no real NCCL was found. The substitute differs from that
// of SubstituteForMissing in its result code, ncclSystemError, and in its error text.
void* SubstituteWithoutNccl(Returns returns);

}  // namespace nccltune::sendrecv
