// SPDX-License-Identifier: Apache-2.0
// A request to a plugin, and the resulting decision of the simulated NCCL version.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/cost_table.h"
#include "host/nccl_rules.h"
#include "host/plugin_log.h"

namespace nccltune::host {

// A mistake of the plugin that NCCL would not report. docs/reference/plugin-host.md lists the
// codes.
struct Warning {
  std::string code;
  std::string text;
};

// An error that NCCL would treat as fatal.
struct Failure {
  std::string kind;
  std::string text;
};

struct DecisionRequest {
  abi::TunedCollective collective = abi::kAllReduce;
  // Counted as NCCL's tuner does: for all-gather and reduce-scatter, the sum over all ranks.
  size_t bytes = 0;
  int pipe_ops = 1;
  bool registered = false;
  // NCCL's predictions in us. A combination that is not listed is not usable. nullopt: use a
  // nominal table.
  std::optional<std::vector<std::pair<Combination, float>>> costs = std::nullopt;
  // The chunk size that NCCL would use without a plugin, which is the input of the plugin's
  // getChunkSize. 0: the largest that fits in the buffers.
  size_t chunk_bytes = 0;
};

struct TableChange {
  Combination entry;
  float before;
  float after;
};

// The plugin's decision. An unknown combination or a missing number means NCCL's own choice.
struct PluginChoice {
  Combination combination;
  std::optional<int> channels;
  std::optional<size_t> chunk_bytes;
};

enum class DecisionResult {
  kDefault,  // the plugin changed neither table, channels nor chunk size
  kChosen,   // the plugin decided; `choice` holds its decision
  kFails,    // the collective fails; `failure` holds the reason
};

struct Decision {
  DecisionRequest request;
  DecisionResult outcome = DecisionResult::kDefault;
  PluginChoice choice;
  Combination selected;  // the combination that NCCL runs; unknown if it cannot be determined
  int channels_requested = 0;
  std::vector<TableChange> table_changed;
  std::vector<Warning> warnings;
  std::optional<Failure> failure;
  LogLines log;

  void Warn(std::string code, std::string text) {
    warnings.push_back({std::move(code), std::move(text)});
  }
  void Fail(std::string kind, std::string text) {
    outcome = DecisionResult::kFails;
    failure = Failure{std::move(kind), std::move(text)};
  }
};

// Derives NCCL's decision from the answer that a plugin has already given.

struct Answer {
  const NcclRules& rules;
  const CostTable& offered;
  const CostTable& answered;
  bool nominal;                      // `offered` is a nominal table, whose costs mean nothing
  Combination named;                 // the combination that a v2 plugin named, unchecked
  int channels;                      // the plugin's channel count, unchecked
  std::optional<int> channel_limit;  // number of channels of the communicator, if known
};

// Sets outcome, choice, selected, channels_requested and table_changed of the decision, and adds
// warnings. TunerHost adds the chunk size later, when the combination is known.
void Judge(const Answer& answer, Decision* decision);

}  // namespace nccltune::host
