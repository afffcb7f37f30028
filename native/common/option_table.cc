// SPDX-License-Identifier: Apache-2.0
#include "common/option_table.h"

#include <algorithm>
#include <optional>

namespace nccltune {

void OptionTable::Flag(std::string_view name, bool* out) { options_.push_back({name, out, {}}); }

void OptionTable::Value(std::string_view name, Read read) {
  options_.push_back({name, nullptr, std::move(read)});
}

void OptionTable::Path(std::string_view name, std::string* out) {
  Value(name, [out](std::string_view text) {
    *out = text;
    return text.empty() ? "the path is empty" : "";
  });
}

void OptionTable::OneOf(std::string_view name, Words words, std::function<void(size_t)> take) {
  Value(name, [words, take = std::move(take)](std::string_view text) -> std::string {
    if (const std::optional<int> number = NumberOf(words, text)) {
      take(static_cast<size_t>(*number));
      return {};
    }
    const std::string_view nearest = Nearest(words, text);
    return Quoted(text) + " is none of " + Listed(words) +
           (nearest.empty() ? "" : "; did you mean " + Quoted(nearest) + "?");
  });
}

bool OptionTable::Parse(const std::vector<std::string_view>& arguments, std::string* error) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (positional_ && !argument.starts_with("--")) {
      *error = positional_(argument);
      if (!error->empty()) return false;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const auto option = std::ranges::find(options_, name, &Option::name);
    if (option == options_.end()) {
      *error = Unknown(name);
      return false;
    }
    const bool inside = equals != std::string_view::npos;
    if (option->flag != nullptr) {
      *error = inside ? std::string(name) + " takes no value" : "";
      *option->flag = true;
    } else if (!inside && i + 1 == arguments.size()) {
      *error = std::string(name) + " lacks its value";
    } else {
      *error = option->read(inside ? argument.substr(equals + 1) : arguments[++i]);
      if (!error->empty()) *error = std::string(name) + ": " + *error;
    }
    if (!error->empty()) return false;
  }
  return true;
}

std::string OptionTable::Unknown(std::string_view name) const {
  std::vector<std::string_view> names;
  names.reserve(options_.size());
  for (const Option& option : options_) names.push_back(option.name);
  const std::string_view nearest = Nearest(names, name);
  return Quoted(name) + " is not an option" +
         (nearest.empty() ? "" : "; did you mean " + Quoted(nearest) + "?");
}

}  // namespace nccltune
