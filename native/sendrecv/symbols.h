// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions as symbols.txt lists them, numbered as the trampolines count them.
#ifndef NCCLTUNE_SENDRECV_SYMBOLS_H_
#define NCCLTUNE_SENDRECV_SYMBOLS_H_

#include <algorithm>
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

// A function that enqueues work of NCCL's beside sends and receives.
constexpr bool EnqueuesWork(std::string_view name) {
  constexpr std::array<std::string_view, 7> kParts = {"Reduce",    "Gather",   "Scatter", "Bcast",
                                                      "Broadcast", "AlltoAll", "Signal"};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// A trampoline, of this library or of another copy of it: each has a mark before it.
inline bool IsTrampoline(const void* function) {
  constexpr std::string_view kMark = "nccltune";
  const auto address = reinterpret_cast<uintptr_t>(function);
  // Aligned, so that the mark is on the page of the code, which can be read.
  if (address % 32 != kMark.size()) return false;
  return std::memcmp(reinterpret_cast<const void*>(address - kMark.size()), kMark.data(),
                     kMark.size()) == 0;
}

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SYMBOLS_H_
