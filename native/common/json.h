// SPDX-License-Identifier: Apache-2.0
// A small, strict JSON reader and writer (RFC 8259, UTF-8 only), for programs that exchange one
// JSON value per line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nccltune::json {

// A JSON value. Objects keep the order of their members; the parser rejects repeated keys.
class Value {
 public:
  using Array = std::vector<Value>;
  using Member = std::pair<std::string, Value>;
  using Object = std::vector<Member>;

  Value() : data_(nullptr) {}
  Value(std::nullptr_t) : data_(nullptr) {}                     // NOLINT: implicit on purpose
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

  // Each function returns a pointer to the content if the value has that type, else null.
  const bool* AsBool() const { return std::get_if<bool>(&data_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&data_); }
  const double* AsDouble() const { return std::get_if<double>(&data_); }
  const std::string* AsString() const { return std::get_if<std::string>(&data_); }
  const Array* AsArray() const { return std::get_if<Array>(&data_); }
  const Object* AsObject() const { return std::get_if<Object>(&data_); }

  // Sets *out to the value of an integer or of a double. Returns false for other types.
  bool ToNumber(double* out) const;

  // Returns the member named `key`; null if there is no such member or if this value is not an
  // object.
  const Value* Find(std::string_view key) const;

  // Adds or replaces a member. This value must be an object or null; null becomes an empty object.
  void Set(std::string_view key, Value value);
  // Adds an element. This value must be an array or null; null becomes an empty array.
  void Append(Value value);

  // Returns "null", "a boolean", "an integer", "a number", "a string", "an array" or "an object".
  const char* KindName() const;

 private:
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> data_;
};

struct Limits {
  int max_depth = 32;
  size_t max_bytes = size_t{16} << 20;
  size_t max_members = 1024;  // per object; the check for repeated keys is quadratic
};

struct Error {
  std::string message;
  size_t offset = 0;  // byte offset in the text
};

// Parses a text that consists of one value and white space. On error, returns false, sets *error
// and leaves *out null. A number without a fraction and an exponent is read as a 64-bit integer if
// it fits. Any other number is read as a double. A number outside double's range (1e999, 1e-999) is
// an error.
bool Parse(std::string_view text, Value* out, Error* error, const Limits& limits = {});

// Returns the value as one line of text without blanks. A double is written in the shortest exact
// form, with a '.' or an exponent, so that it is read as a double again. NaN and infinities become
// null. Bytes that are not UTF-8 become U+FFFD.
std::string Write(const Value& value);

// Reads the members of a JSON object one by one. A member that is missing, unknown or of the wrong
// type is an error, and the error text names the member.

// Reads the members of a JSON object. Call Required or Optional for every possible member, then
// Finish. After the first error, further calls record no other error, so one check at the end is
// enough.
class Fields {
 public:
  // `value` must outlive this object. If `value` is not an object, that is the first error.
  explicit Fields(const Value& value);

  // Each function sets *out to the member `key`. A null member counts as absent. *out is unchanged
  // if an optional member is absent. An absent required member, a member of another type, and an
  // integer outside [low, high] are errors.
  Fields& Required(std::string_view key, std::string* out);
  Fields& Required(std::string_view key, int64_t* out, int64_t low, int64_t high);
  Fields& Optional(std::string_view key, std::string* out);
  Fields& Optional(std::string_view key, int64_t* out, int64_t low, int64_t high);
  Fields& Optional(std::string_view key, bool* out);
  // Sets *out to a pointer to the member, which may have any type. *out is unchanged if the member
  // is absent or null.
  Fields& Optional(std::string_view key, const Value** out);

  // Returns the first error, or an error for a member that was not read. Empty if there is no
  // error.
  std::string Finish();

 private:
  const Value* Take(std::string_view key, bool required);
  Fields& Fail(std::string message);
  Fields& String(std::string_view key, std::string* out, bool required);
  Fields& Integer(std::string_view key, int64_t* out, int64_t low, int64_t high, bool required);

  const Value& value_;
  std::vector<std::string_view> known_;
  std::string error_;
};

}  // namespace nccltune::json
