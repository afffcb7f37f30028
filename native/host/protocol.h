// SPDX-License-Identifier: Apache-2.0
// Parses the requests of nccltune-host and builds its answers, one JSON object per line; see
// docs/reference/plugin-host.md.
#pragma once

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
  DecisionRequest request;
  bool want_log = false;  // report all log lines of the plugin, not only warnings
};

// Parses one line of standard input. Returns false with *error if the line is no valid request
// under `rules`, the rules of the simulated NCCL version.
bool ParseCommand(std::string_view line, const NcclRules& rules, Command* command,
                  std::string* error);

// `failure` is set if the host could not start.
json::Value InitAnswer(const HostOptions& options, const InitReport& report,
                       const std::optional<Failure>& failure);
json::Value DecideAnswer(const Decision& decision, bool want_log);
// `problem` is the error of finalize; empty if there was none.
json::Value QuitAnswer(const std::string& problem);
json::Value RequestErrorAnswer(const std::string& error);

}  // namespace nccltune::host
