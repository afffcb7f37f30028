// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user would.
#ifndef NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
#define NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_

#include <string>

#include "common/json.h"

namespace nccltune::host::net {

struct CommandResult {
  int status = -1;     // exit status of the program; 128 + n for signal n
  std::string output;  // standard output and standard error
  json::Value report;  // the line of JSON; null if there is none
};

// Runs a shell command line.
CommandResult RunCommand(const std::string& command);

// Checks that the reports of both ranks show this many messages in each direction, with all their
// bytes.
void ExpectMessages(const CommandResult& outcome, double messages);

// Returns a number in the report, for example "ranks" 1 "sent" "messages"; -1 if it is absent.
double NumberOf(const json::Value& rank, const char* first, const char* second);

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
