// SPDX-License-Identifier: Apache-2.0
#include "host/guarded.h"

namespace nccltune::host {
namespace {

// Returns the guard byte at `index`. Neighbouring bytes differ. A plugin is unlikely to write the
// same bytes as part of a float, an integer or a pointer.
uint8_t GuardByte(size_t index) { return static_cast<uint8_t>(0xA5 ^ (index * 37)); }

}  // namespace

GuardedBytes::GuardedBytes(const char* name, size_t size)
    : name_(name), size_(size), memory_(new uint8_t[2 * kGuardBytes + size]()) {
  FillGuards();
}

void GuardedBytes::FillGuards() {
  for (size_t i = 0; i < kGuardBytes; ++i) {
    memory_[i] = GuardByte(i);
    memory_[kGuardBytes + size_ + i] = GuardByte(i);
  }
}

std::optional<std::string> GuardedBytes::TakeDamage() {
  size_t before = 0;     // number of damaged bytes before the memory
  size_t before_at = 0;  // distance of the farthest damaged byte from the memory
  size_t after = 0;
  size_t after_at = 0;
  for (size_t i = 0; i < kGuardBytes; ++i) {
    if (memory_[i] != GuardByte(i)) {
      if (before == 0) before_at = kGuardBytes - i;
      ++before;
    }
    if (memory_[kGuardBytes + size_ + i] != GuardByte(i)) {
      ++after;
      after_at = i + 1;
    }
  }
  if (before == 0 && after == 0) return std::nullopt;
  FillGuards();
  std::string words =
      "wrote outside of the " + std::string(name_) + " (" + std::to_string(size_) + " bytes): ";
  if (before != 0) {
    words += std::to_string(before) + " bytes up to " + std::to_string(before_at) + " before it";
  }
  if (before != 0 && after != 0) words += ", ";
  if (after != 0) {
    words += std::to_string(after) + " bytes up to " + std::to_string(after_at) + " behind it";
  }
  return words;
}

}  // namespace nccltune::host
