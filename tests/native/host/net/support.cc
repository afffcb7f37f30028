// SPDX-License-Identifier: Apache-2.0
#include "host/net/support.h"
#include "program_output.h"
#include "testing.h"

namespace nccltune::host::net {

CommandResult RunCommand(const std::string& command) {
  CommandResult outcome;
  const auto [output, status] = RunLine("(" + command + ") 2>&1");
  if (status == -1) return outcome;
  outcome.output = output;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const size_t line = outcome.output.find("{\"op\"");
  if (line != std::string::npos) {
    const std::string text = outcome.output.substr(line, outcome.output.find('\n', line) - line);
    json::Error error;
    if (!json::Parse(text, &outcome.report, &error)) outcome.report = json::Value();
  }
  return outcome;
}

void ExpectMessages(const CommandResult& outcome, double messages) {
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json::Value* const ranks = outcome.report.Find("ranks");
  ASSERT_NE(ranks, nullptr) << outcome.output;
  ASSERT_EQ(ranks->AsArray()->size(), 2U);
  for (const json::Value& rank : *ranks->AsArray()) {
    EXPECT_EQ(NumberOf(rank, "sent", "messages"), messages);
    EXPECT_EQ(NumberOf(rank, "received", "messages"), messages);
  }
  const json::Value& first = (*ranks->AsArray())[0];
  const json::Value& second = (*ranks->AsArray())[1];
  EXPECT_EQ(NumberOf(first, "sent", "bytes"), NumberOf(second, "received", "bytes"));
  EXPECT_EQ(NumberOf(first, "received", "bytes"), NumberOf(second, "sent", "bytes"));
}

double NumberOf(const json::Value& rank, const char* first, const char* second) {
  const json::Value* const inner = rank.Find(first);
  const json::Value* const value = inner == nullptr ? nullptr : inner->Find(second);
  double number = -1;
  if (value != nullptr) value->ToNumber(&number);
  return number;
}

}  // namespace nccltune::host::net
