// SPDX-License-Identifier: Apache-2.0
// What is asked of a plugin, and what came of it as the played NCCL version sees it.
#ifndef NCCLTUNE_HOST_DECISION_H_
#define NCCLTUNE_HOST_DECISION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/cost_table.h"
#include "host/names.h"
#include "host/plugin_log.h"

namespace nccltune::host {

// Something that NCCL would not tell and a person should know. Codes are listed in
// docs/reference/plugin-host.md.
struct Warning {
  std::string code;
  std::string text;
};

// Why NCCL could not go on.
struct Failure {
  std::string kind;
  std::string text;
};

struct Request {
  abi::Collective collective = abi::kAllReduce;
  size_t bytes = 0;  // as the tuner counts: for all-gather and reduce-scatter over all ranks
  int pipe_ops = 1;
  bool registered = false;
  // NCCL's predictions in us; entries left out are not usable. None: a nominal table.
  std::optional<std::vector<std::pair<Combination, float>>> costs = std::nullopt;
  // What NCCL would use by itself: it goes in when the plugin is asked for a chunk size. 0: the
  // largest that fits the buffers.
  size_t chunk_bytes = 0;
};

struct TableChange {
  Combination entry;
  float before;
  float after;
};

// What the plugin settled; an unknown combination and absent numbers are NCCL's own.
struct Choice {
  Combination combination;
  std::optional<int> channels;
  std::optional<size_t> chunk_bytes;
};

enum class Outcome {
  kDefault,  // the plugin left table, channels and chunk size as they were
  kChosen,   // the plugin settled what `choice` holds
  kFails,    // the collective fails, see `failure`
};

struct Decision {
  Request request;
  Outcome outcome = Outcome::kDefault;
  Choice choice;
  Combination selected;  // what NCCL runs, if that can be told
  int channels_requested = 0;
  std::vector<TableChange> table_changed;
  std::vector<Warning> warnings;
  std::optional<Failure> failure;
  LogLines log;

  void Warn(std::string code, std::string text) {
    warnings.push_back({std::move(code), std::move(text)});
  }
  void Fail(std::string kind, std::string text) {
    outcome = Outcome::kFails;
    failure = Failure{std::move(kind), std::move(text)};
  }
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_DECISION_H_
