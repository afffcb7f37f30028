// SPDX-License-Identifier: Apache-2.0
// Parses the command line of a program with a table of options. Each option has a function that
// reads its value.
#pragma once

#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/text.h"
#include "common/vocabulary.h"

namespace nccltune {

// Reads a decimal number from `low` to `high`. Returns an error text; empty if the number is valid.
template <typename T>
std::string ReadNumber(std::string_view text, T low, T high, T* out) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const std::from_chars_result read = std::from_chars(begin, end, *out);
  if (read.ec == std::errc() && read.ptr == end && *out >= low && *out <= high) return {};
  using Shown = std::conditional_t<std::is_floating_point_v<T>, long long, T>;
  return Quoted(text) + " is no number from " + std::to_string(static_cast<Shown>(low)) + " to " +
         std::to_string(static_cast<Shown>(high));
}

class OptionTable {
 public:
  // Reads the value of an option. Returns an error text, such as "'x' is no number from 1 to 8", or
  // an empty text. Parse writes the option's name before the error text.
  using Read = std::function<std::string(std::string_view value)>;

  // Adds an option without a value. *out becomes true if the option is given and is unchanged
  // otherwise.
  void Flag(std::string_view name, bool* out);
  void Value(std::string_view name, Read read);
  // Adds an option whose value is a path. The path must not be empty.
  void Path(std::string_view name, std::string* out);
  // Adds an option whose value is one of `words`. `take` is called with the index of the word.
  void OneOf(std::string_view name, Words words, std::function<void(size_t)> take);
  template <typename T, typename Out>
  void Number(std::string_view name, T low, T high, Out* out) {
    Value(name, [low, high, out](std::string_view text) {
      T value{};
      std::string wrong = ReadNumber(text, low, high, &value);
      if (wrong.empty()) *out = value;
      return wrong;
    });
  }
  // Sets the function for arguments that do not start with "--". Its error text is used without a
  // prefix. If no function is set, such arguments are errors.
  void Positional(Read read) { positional_ = std::move(read); }

  // Parses "--name value" and "--name=value". Stops at the first error, sets *error and returns
  // false. Errors are an unknown option, a bad or missing value, a value for a flag, and a bad
  // positional argument.
  bool Parse(const std::vector<std::string_view>& arguments, std::string* error) const;

 private:
  struct Option {
    std::string_view name;
    bool* flag;
    Read read;
  };
  std::string Unknown(std::string_view name) const;

  std::vector<Option> options_;
  Read positional_;
};

}  // namespace nccltune
