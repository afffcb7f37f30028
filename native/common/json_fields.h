// SPDX-License-Identifier: Apache-2.0
// Reads the members of a JSON object one by one. A member that is missing, unknown or of the wrong
// type is an error, and the error text names the member.
#ifndef NCCLTUNE_COMMON_JSON_FIELDS_H_
#define NCCLTUNE_COMMON_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"

namespace nccltune::json {

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

#endif  // NCCLTUNE_COMMON_JSON_FIELDS_H_
