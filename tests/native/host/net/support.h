// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user would.
#ifndef NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
#define NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_

#include <string>

#include "common/json.h"
#include "program_output.h"
#include "testing.h"

namespace nccltune::host::net {

struct CommandResult {
  int status = -1;     // exit status of the program; 128 + n for signal n
  std::string output;  // standard output and standard error
  json::Value report;  // the line of JSON; null if there is none
};

// Runs a shell command line.
inline CommandResult RunCommand(const std::string& command) {
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

// Returns a number in the report, for example "ranks" 1 "sent" "messages"; -1 if it is absent.
inline double NumberOf(const json::Value& rank, const char* first, const char* second) {
  const json::Value* const inner = rank.Find(first);
  const json::Value* const value = inner == nullptr ? nullptr : inner->Find(second);
  double number = -1;
  if (value != nullptr) value->ToNumber(&number);
  return number;
}

// Checks that the reports of both ranks show this many messages in each direction, with all their
// bytes.
inline void ExpectMessages(const CommandResult& outcome, double messages) {
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

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
