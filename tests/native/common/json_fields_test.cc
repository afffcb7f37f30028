// SPDX-License-Identifier: Apache-2.0
#include "common/json_fields.h"

#include <gtest/gtest.h>

#include <string>

namespace nccltune::json {
namespace {

struct Taken {
  std::string name = "-";
  int64_t count = -1;
  bool flag = false;
  const Value* rest = nullptr;
  std::string problem;
};

Value Read(std::string_view text) {
  Value value;
  Error error;
  EXPECT_TRUE(Parse(text, &value, &error)) << error.message;
  return value;
}

Taken TakeAll(const Value& value) {
  Taken taken;
  taken.problem = Fields(value)
                      .Required("name", &taken.name)
                      .Optional("count", &taken.count, 0, 9)
                      .Optional("flag", &taken.flag)
                      .Optional("rest", &taken.rest)
                      .Finish();
  return taken;
}

std::string ProblemOf(std::string_view text) { return TakeAll(Read(text)).problem; }

TEST(JsonFields, TakesWhatIsThereAndLeavesTheRest) {
  const Value value = Read(R"({"name":"x","count":9,"flag":true,"rest":[1]})");
  const Taken taken = TakeAll(value);
  EXPECT_EQ(taken.problem, "");
  EXPECT_EQ(taken.name, "x");
  EXPECT_EQ(taken.count, 9);
  EXPECT_TRUE(taken.flag);
  ASSERT_NE(taken.rest, nullptr);
  EXPECT_EQ(Write(*taken.rest), "[1]");

  const Value little = Read(R"({"name":"x","count":null})");
  const Taken less = TakeAll(little);
  EXPECT_EQ(less.problem, "");
  EXPECT_EQ(less.count, -1);
  EXPECT_EQ(less.rest, nullptr);
}

TEST(JsonFields, NamesTheMemberThatIsWrong) {
  EXPECT_EQ(ProblemOf("{}"), "'name' is missing");
  EXPECT_EQ(ProblemOf("[]"), "expected an object, not an array");
  EXPECT_EQ(ProblemOf(R"({"name":1})"), "'name' must be a string, not an integer");
  EXPECT_EQ(ProblemOf(R"({"name":"x","count":10})"), "'count' must be from 0 to 9");
  EXPECT_EQ(ProblemOf(R"({"name":"x","count":-1})"), "'count' must be from 0 to 9");
  EXPECT_EQ(ProblemOf(R"({"name":"x","count":1.5})"), "'count' must be an integer, not a number");
  EXPECT_EQ(ProblemOf(R"({"name":"x","flag":0})"), "'flag' must be a boolean, not an integer");
  EXPECT_EQ(ProblemOf(R"({"name":"x","cuont":1})"),
            "'cuont' is not known here; valid: name count flag rest");
  EXPECT_EQ(ProblemOf(R"({"count":"x","name":2})"), "'name' must be a string, not an integer");
}

}  // namespace
}  // namespace nccltune::json
