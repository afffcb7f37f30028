// SPDX-License-Identifier: Apache-2.0
// Converts structs to bytes and back. Each struct has one function Describe(archive, value), which
// passes every member to the archive. The same function serves writing and reading.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/backend.h"
#include "bench/step.h"
#include "common/little_endian.h"

namespace nccltune::bench {

template <typename Archive>
void Describe(Archive& archive, OpenError& error) {
  archive(error.kind, error.text, error.hint, error.rank);
}

template <typename Archive>
void Describe(Archive& archive, StepError& error) {
  archive(error.kind, error.text, error.rank, error.fatal);
}

class Writer {
 public:
  template <typename... T>
  void operator()(const T&... values) {
    (Put(values), ...);
  }

  std::string Take() { return std::move(bytes_); }

 private:
  void Number(uint64_t number) { little_endian::Append(&bytes_, number); }

  template <typename T>
  void Put(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      Number(std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      Number(static_cast<uint64_t>(value));
    } else {
      // Describe takes a non-const reference, because the Reader uses the same function. The Writer
      // does not modify the value.
      Describe(*this, const_cast<T&>(value));
    }
  }
  void Put(const std::string& text) {
    Number(text.size());
    bytes_ += text;
  }
  template <typename T>
  void Put(const std::optional<T>& value) {
    Put(value.has_value());
    if (value) Put(*value);
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Number(values.size());
    for (const T& value : values) Put(value);
  }
  template <typename A, typename B>
  void Put(const std::pair<A, B>& pair) {
    Put(pair.first);
    Put(pair.second);
  }

  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }

  // Returns true if every value was read and no bytes are left over.
  bool Finished() const { return good_ && bytes_.empty(); }

 private:
  uint64_t Number() {
    if (bytes_.size() < 8) good_ = false;
    if (!good_) return 0;
    const uint64_t number = little_endian::Get<uint64_t>(bytes_, 0);
    bytes_.remove_prefix(8);
    return number;
  }

  template <typename T>
  void Get(T& value) {
    if constexpr (std::is_same_v<T, double>) {
      value = std::bit_cast<double>(Number());
    } else if constexpr (std::is_same_v<T, bool>) {
      value = Number() != 0;
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      value = static_cast<T>(Number());
    } else {
      Describe(*this, value);
    }
  }
  void Get(std::string& text) {
    const uint64_t length = Number();
    if (length > bytes_.size()) good_ = false;
    if (!good_) return;
    text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
  }
  template <typename T>
  void Get(std::optional<T>& value) {
    value.reset();
    if (Number() != 0) Get(value.emplace());
  }
  template <typename T>
  void Get(std::vector<T>& values) {
    values.clear();
    // Each value takes at least eight bytes. With this check a damaged count cannot allocate much
    // memory.
    const uint64_t count = Number();
    if (count > bytes_.size() / 8) good_ = false;
    for (uint64_t i = 0; good_ && i < count; ++i) Get(values.emplace_back());
  }
  template <typename A, typename B>
  void Get(std::pair<A, B>& pair) {
    Get(pair.first);
    Get(pair.second);
  }

  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace nccltune::bench
