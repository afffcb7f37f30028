// SPDX-License-Identifier: Apache-2.0
#include "common/json_fields.h"

#include <algorithm>
#include <utility>

namespace nccltune::json {

Fields::Fields(const Value& value) : value_(value) {
  if (value.AsObject() == nullptr) Fail(std::string("expected an object, not ") + value.KindName());
}

Fields& Fields::Fail(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  return *this;
}

const Value* Fields::Take(std::string_view key, bool required) {
  known_.push_back(key);
  const Value* member = value_.Find(key);
  if (member != nullptr && !member->IsNull()) return member;
  if (required) Fail("'" + std::string(key) + "' is missing");
  return nullptr;
}

Fields& Fields::String(std::string_view key, std::string* out, bool required) {
  const Value* member = Take(key, required);
  if (member == nullptr) return *this;
  const std::string* text = member->AsString();
  if (text == nullptr) {
    return Fail("'" + std::string(key) + "' must be a string, not " + member->KindName());
  }
  *out = *text;
  return *this;
}

Fields& Fields::Integer(std::string_view key, int64_t* out, int64_t low, int64_t high,
                        bool required) {
  const Value* member = Take(key, required);
  if (member == nullptr) return *this;
  const int64_t* integer = member->AsInt();
  if (integer == nullptr) {
    return Fail("'" + std::string(key) + "' must be an integer, not " + member->KindName());
  }
  if (*integer < low || *integer > high) {
    return Fail("'" + std::string(key) + "' must be from " + std::to_string(low) + " to " +
                std::to_string(high));
  }
  *out = *integer;
  return *this;
}

Fields& Fields::Required(std::string_view key, std::string* out) { return String(key, out, true); }
Fields& Fields::Optional(std::string_view key, std::string* out) { return String(key, out, false); }

Fields& Fields::Required(std::string_view key, int64_t* out, int64_t low, int64_t high) {
  return Integer(key, out, low, high, true);
}
Fields& Fields::Optional(std::string_view key, int64_t* out, int64_t low, int64_t high) {
  return Integer(key, out, low, high, false);
}

Fields& Fields::Optional(std::string_view key, bool* out) {
  const Value* member = Take(key, false);
  if (member == nullptr) return *this;
  const bool* truth = member->AsBool();
  if (truth == nullptr) {
    return Fail("'" + std::string(key) + "' must be a boolean, not " + member->KindName());
  }
  *out = *truth;
  return *this;
}

Fields& Fields::Optional(std::string_view key, const Value** out) {
  const Value* member = Take(key, false);
  if (member != nullptr) *out = member;
  return *this;
}

std::string Fields::Finish() {
  if (!error_.empty()) return error_;
  for (const Value::Member& member : *value_.AsObject()) {
    if (std::find(known_.begin(), known_.end(), member.first) != known_.end()) continue;
    std::string valid;
    for (const std::string_view key : known_) valid += " " + std::string(key);
    return "'" + member.first + "' is not known here; valid:" + valid;
  }
  return "";
}

}  // namespace nccltune::json
