// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user does.
#ifndef NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
#define NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_

#include <string>

#include "common/json.h"

namespace nccltune::host::net {

struct Outcome {
  int status = -1;     // of the program; 128 + n for signal n
  std::string output;  // both streams
  json::Value report;  // the line of JSON, null if there is none
};

// A shell's command line.
Outcome RunCommand(const std::string& command);

// nccltune-net-host with the tests' plugin, which has the fault of that name ("" for none).
Outcome RunNaive(const std::string& arguments, const std::string& fault = "");

// The reports of both ranks show that this many messages went each way, and all of their bytes.
void ExpectMessages(const Outcome& outcome, double messages);

// A number in the report, "ranks" 1 "sent" "messages" for example; -1 if there is none.
double NumberOf(const json::Value& rank, const char* first, const char* second);

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_TESTS_HOST_NET_SUPPORT_H_
