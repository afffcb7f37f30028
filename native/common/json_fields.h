// SPDX-License-Identifier: Apache-2.0
// Takes the members of a JSON object one by one: wrong kinds, missing and unknown members are
// errors that name the member.
#ifndef NCCLTUNE_COMMON_JSON_FIELDS_H_
#define NCCLTUNE_COMMON_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"

namespace nccltune::json {

// Reads the members of a JSON object. Call Required or Optional for every possible member, then
// Finish. After the first error all calls do nothing, so one check at the end is enough.
class Fields {
 public:
  // `value` must outlive this object. A value that is not an object is the first error.
  explicit Fields(const Value& value);

  // Sets *out if the member exists and has that type; null counts as absent. Integers must be in
  // [low, high].
  Fields& Required(std::string_view key, std::string* out);
  Fields& Required(std::string_view key, int64_t* out, int64_t low, int64_t high);
  Fields& Optional(std::string_view key, std::string* out);
  Fields& Optional(std::string_view key, int64_t* out, int64_t low, int64_t high);
  Fields& Optional(std::string_view key, bool* out);
  // Sets *out to the member itself, of any type except null. *out is unchanged if there is none.
  Fields& Optional(std::string_view key, const Value** out);

  // Returns the first error; empty if there was none and every member was read.
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
