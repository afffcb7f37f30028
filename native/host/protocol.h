// SPDX-License-Identifier: Apache-2.0
// The JSON lines of nccltune-host. docs/reference/plugin-host.md is the reference.
#ifndef NCCLTUNE_HOST_PROTOCOL_H_
#define NCCLTUNE_HOST_PROTOCOL_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/json.h"
#include "host/decision.h"
#include "host/tuner_host.h"

namespace nccltune::host {

inline constexpr int kSchemaVersion = 1;

struct Command {
  enum class Kind { kDecide, kQuit };
  Kind kind = Kind::kDecide;
  Request request;
  bool want_log = false;  // all of the plugin's lines, not its warnings alone
};

// One line of standard input. False and *error in words for anything that is no valid request to
// a host with these rules.
bool ParseCommand(std::string_view line, const NcclRules& rules, Command* command,
                  std::string* error);

// `failure` is why the host could not start, if it could not.
json::Value InitAnswer(const HostOptions& options, const InitReport& report,
                       const std::optional<Failure>& failure);
json::Value DecideAnswer(const Decision& decision, bool want_log);
// `problem` is what finalize had to complain of, empty if nothing.
json::Value QuitAnswer(const std::string& problem);
json::Value RequestErrorAnswer(const std::string& error);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_PROTOCOL_H_
