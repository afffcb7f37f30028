// SPDX-License-Identifier: Apache-2.0
#include "common/json.h"
#include "testing.h"

namespace nccltune::json {
namespace {

std::string Problem(std::string_view text, const Limits& limits = {}) {
  Value value;
  Error error;
  if (Parse(text, &value, &error, limits)) return "no error";
  EXPECT_TRUE(value.IsNull()) << text;
  return error.message + " @" + std::to_string(error.offset);
}

// Parses the text and writes it again.
std::string Again(std::string_view text) {
  Value value;
  Error error;
  EXPECT_TRUE(Parse(text, &value, &error)) << text << ": " << error.message;
  return Write(value);
}

TEST(Json, ReadsEveryKindAndWritesItBack) {
  EXPECT_EQ(Again(" { \"a\" : [ 1 , -2.5e3 , true , false , null , \"x\" ] , \"b\":{} } \r\n"),
            "{\"a\":[1,-2500.0,true,false,null,\"x\"],\"b\":{}}");
  EXPECT_EQ(Again("[]"), "[]");
  EXPECT_EQ(Again("\"\""), "\"\"");
  EXPECT_EQ(Again("0"), "0");
  EXPECT_EQ(Again("-0.0"), "-0.0");
}

TEST(Json, KeepsIntegersExactAndApartFromReals) {
  EXPECT_EQ(Again("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(Again("-9223372036854775808"), "-9223372036854775808");
  Value value;
  Error error;
  ASSERT_TRUE(Parse("9223372036854775808", &value, &error));
  ASSERT_NE(value.AsDouble(), nullptr);
  EXPECT_EQ(*value.AsDouble(), 9223372036854775808.0);
  ASSERT_TRUE(Parse("1.0", &value, &error));
  EXPECT_EQ(value.AsInt(), nullptr);
  EXPECT_EQ(Write(value), "1.0");
  EXPECT_EQ(Again("0.1"), "0.1");
  EXPECT_EQ(Again("1e+22"), "1e+22");
}

TEST(Json, RefusesWhatTheGrammarHasNot) {
  EXPECT_EQ(Problem(""), "unexpected end of text @0");
  EXPECT_EQ(Problem("  "), "unexpected end of text @2");
  EXPECT_EQ(Problem("01"), "a number must not start with 0 @1");
  EXPECT_EQ(Problem("+1"), "not a JSON value @0");
  EXPECT_EQ(Problem("1."), "expected a digit after '.' @2");
  EXPECT_EQ(Problem(".5"), "not a JSON value @0");
  EXPECT_EQ(Problem("1e"), "expected a digit in the exponent @2");
  EXPECT_EQ(Problem("-"), "not a JSON value @1");
  EXPECT_EQ(Problem("NaN"), "not a JSON value @0");
  EXPECT_EQ(Problem("truth"), "not a JSON value @0");
  EXPECT_EQ(Problem("1 2"), "unexpected text after the value @2");
  EXPECT_EQ(Problem("[1,]"), "not a JSON value @3");
  EXPECT_EQ(Problem("[1 2]"), "expected ',' or ']' @3");
  EXPECT_EQ(Problem("{\"a\" 1}"), "expected ':' @5");
  EXPECT_EQ(Problem("{\"a\":1,}"), "expected a string as the name of a member @7");
  EXPECT_EQ(Problem("{a:1}"), "expected a string as the name of a member @1");
  EXPECT_EQ(Problem("{\"a\":1"), "expected ',' or '}' @6");
  EXPECT_EQ(Problem("{\"a\":1,\"a\":2}"), "the object has this member twice @7");
  EXPECT_EQ(Problem("1e999"), "the number is beyond a double's range @0");
  EXPECT_EQ(Problem("\"a\nb\""), "control character in a string @2");
  EXPECT_EQ(Problem("\"a"), "the string has no end @2");
  EXPECT_EQ(Problem("\"\\x\""), "unknown escape in a string @2");
  EXPECT_EQ(Problem("\"\\"), "unknown escape in a string @2");
  EXPECT_EQ(Problem("\"\\u12g4\""), "expected four hexadecimal digits @3");
  EXPECT_EQ(Problem("\"\\u12"), "expected four hexadecimal digits @3");
  EXPECT_EQ(Problem(std::string_view("\0", 1)), "not a JSON value @0");
}

TEST(Json, ReadsEscapesAndSurrogatePairs) {
  Value value;
  Error error;
  ASSERT_TRUE(Parse(R"("\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00")", &value, &error));
  EXPECT_EQ(*value.AsString(), "\"\\/\b\f\n\r\t\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  EXPECT_EQ(Problem(R"("\ud83d")"), "half of a surrogate pair @1");
  EXPECT_EQ(Problem(R"("\ud83d\u0041")"), "half of a surrogate pair @1");
  EXPECT_EQ(Problem(R"("\ude00")"), "half of a surrogate pair @1");
}

TEST(Json, TakesNothingButUtf8) {
  for (const char* bytes : {"\xFF", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                            "\xC3", "\x80", "\xF0\x9F\x98"}) {
    EXPECT_EQ(Problem("\"" + std::string(bytes) + "\""), "not UTF-8 @1");
  }
  EXPECT_EQ(Again("\"\xF4\x8F\xBF\xBF\xEE\x80\x80\""), "\"\xF4\x8F\xBF\xBF\xEE\x80\x80\"");
}

TEST(Json, WritesWhatItCanReadBack) {
  EXPECT_EQ(Write(Value("a\"\\\n\x01\x7F")), "\"a\\\"\\\\\\n\\u0001\x7F\"");
  EXPECT_EQ(Write(Value("\xFFok\xC3")), "\"\xEF\xBF\xBDok\xEF\xBF\xBD\"");
  EXPECT_EQ(Write(Value(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(Write(Value(-std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(Again(Write(Value(std::numeric_limits<double>::denorm_min()))), "5e-324");
}

TEST(Json, StopsAtItsLimits) {
  const Limits limits{.max_depth = 3, .max_bytes = 24, .max_members = 2};
  EXPECT_EQ(Problem("[[[1]]]", limits), "no error");
  EXPECT_EQ(Problem("[[[[1]]]]", limits), "nested too deeply @3");
  EXPECT_EQ(Problem("[{\"a\":[{}]}]", limits), "nested too deeply @7");
  EXPECT_EQ(Problem("\"" + std::string(23, 'x') + "\"", limits), "text is longer than allowed @0");
  EXPECT_EQ(Problem(R"({"a":1,"b":2,"c":3})", limits), "the object has too many members @16");
  EXPECT_EQ(Problem(std::string(1 << 20, '[')), "nested too deeply @32");
}

TEST(JsonValue, AnswersOnlyForItsOwnKind) {
  Value value;
  value.Set("n", 3);
  value.Set("list", Value::EmptyArray());
  value.Set("n", 4);
  ASSERT_NE(value.Find("n"), nullptr);
  EXPECT_EQ(*value.Find("n")->AsInt(), 4);
  EXPECT_EQ(value.Find("n")->AsString(), nullptr);
  EXPECT_EQ(value.Find("absent"), nullptr);
  EXPECT_EQ(value.Find("n")->Find("n"), nullptr);
  EXPECT_EQ(value.AsObject()->size(), 2u);
  double number = 0;
  EXPECT_TRUE(value.Find("n")->ToNumber(&number));
  EXPECT_EQ(number, 4.0);
  EXPECT_FALSE(value.ToNumber(&number));
  EXPECT_STREQ(value.Find("list")->KindName(), "an array");
  Value list;
  list.Append("x");
  list.Append(nullptr);
  EXPECT_EQ(Write(list), "[\"x\",null]");
}

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
