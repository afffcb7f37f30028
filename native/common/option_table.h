// SPDX-License-Identifier: Apache-2.0
//
// The command line of a program: a table of options, each with a function that reads its value.
#ifndef NCCLTUNE_COMMON_OPTION_TABLE_H_
#define NCCLTUNE_COMMON_OPTION_TABLE_H_

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

// Reads a decimal number. Returns what is wrong with it, or an empty text.
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
  // Returns what is wrong with the value, or an empty text. The message follows the option's name:
  // "'x' is no number from 1 to 8".
  using Read = std::function<std::string(std::string_view value)>;

  // An option without a value.
  void Flag(std::string_view name, bool* out);
  void Value(std::string_view name, Read read);
  // A path that must not be empty.
  void Path(std::string_view name, std::string* out);
  // One of `words`; `take` gets its index.
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
  // Reads arguments that do not start with "--". Without it they are errors. `read` returns the
  // whole message.
  void Positional(Read read) { positional_ = std::move(read); }

  // Parses "--name value" and "--name=value". Returns false and sets *error for an unknown option
  // or a bad value.
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

#endif  // NCCLTUNE_COMMON_OPTION_TABLE_H_
