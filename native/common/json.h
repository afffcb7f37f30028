// SPDX-License-Identifier: Apache-2.0
// A small strict JSON reader and writer (RFC 8259, UTF-8 only) for the JSON-lines programs.
#ifndef NCCLTUNE_COMMON_JSON_H_
#define NCCLTUNE_COMMON_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nccltune::json {

// A JSON value. Objects keep the order of their members; the reader refuses a repeated key.
class Value {
 public:
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;

  Value() : data_(nullptr) {}
  Value(std::nullptr_t) : data_(nullptr) {}                     // NOLINT: a literal is a value
  Value(bool value) : data_(value) {}                           // NOLINT
  Value(int value) : data_(static_cast<int64_t>(value)) {}      // NOLINT
  Value(int64_t value) : data_(value) {}                        // NOLINT
  Value(double value) : data_(value) {}                         // NOLINT
  Value(std::string value) : data_(std::move(value)) {}         // NOLINT
  Value(std::string_view value) : data_(std::string(value)) {}  // NOLINT
  Value(const char* value) : data_(std::string(value)) {}       // NOLINT
  Value(Array value) : data_(std::move(value)) {}               // NOLINT
  Value(Object value) : data_(std::move(value)) {}              // NOLINT
  static Value EmptyArray() { return Value(Array()); }
  static Value EmptyObject() { return Value(Object()); }

  bool IsNull() const { return std::holds_alternative<std::nullptr_t>(data_); }

  // The content if the value is of that kind, else a null pointer.
  const bool* AsBool() const { return std::get_if<bool>(&data_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&data_); }
  const double* AsDouble() const { return std::get_if<double>(&data_); }
  const std::string* AsString() const { return std::get_if<std::string>(&data_); }
  const Array* AsArray() const { return std::get_if<Array>(&data_); }
  const Object* AsObject() const { return std::get_if<Object>(&data_); }

  // An integer or a real as a real; false for any other kind.
  bool ToNumber(double* out) const;

  // The member of that name; null if there is none or this is no object.
  const Value* Find(std::string_view key) const;

  // Adds a member (an object, or null, which becomes one) or replaces it.
  void Set(std::string_view key, Value value);
  // Adds an element (an array, or null, which becomes one).
  void Append(Value value);

  // "null", "a boolean", "an integer", "a number", "a string", "an array" or "an object".
  const char* KindName() const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> data_;
};

struct Limits {
  int max_depth = 32;
  size_t max_bytes = size_t{16} << 20;
  size_t max_members = 1024;  // of one object; looking for repeated keys takes their square
};

struct Error {
  std::string message;
  size_t offset = 0;  // in bytes from the start of the text
};

// Reads exactly one value that fills the whole text, white space aside. False fills *error and
// leaves *out null. Numbers without fraction and exponent that fit are 64-bit integers, all others
// are reals; one beyond double's range (1e999, 1e-999) is an error.
bool Parse(std::string_view text, Value* out, Error* error, const Limits& limits = {});

// One line without blanks or line breaks. Reals keep a '.' or an exponent, so that they read back
// as reals, in the shortest form that reads back equal; NaN and infinities become null. Bytes that
// are no UTF-8 become U+FFFD.
std::string Write(const Value& value);

}  // namespace nccltune::json

#endif  // NCCLTUNE_COMMON_JSON_H_
