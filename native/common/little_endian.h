// SPDX-License-Identifier: Apache-2.0
// Writes and reads unsigned integers as little-endian bytes, for data that leaves the process.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nccltune::little_endian {

// Writes `value` to `to` at the offset `at`. `to` must have at least `at` + sizeof(T) bytes.
template <std::unsigned_integral T>
void Put(std::span<std::byte> to, size_t at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[at + i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

// Reads a value from `from` at the offset `at`. `from` must have at least `at` + sizeof(T) bytes.
template <std::unsigned_integral T>
T Get(std::span<const std::byte> from, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= uint64_t{std::to_integer<uint8_t>(from[at + i])} << (8 * i);
  }
  return static_cast<T>(value);
}

template <std::unsigned_integral T>
T Get(std::string_view from, size_t at) {
  return Get<T>(std::as_bytes(std::span(from)), at);
}

template <std::unsigned_integral T>
void Append(std::string* to, T value) {
  std::array<std::byte, sizeof(T)> bytes{};
  Put(bytes, 0, value);
  to->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace nccltune::little_endian
