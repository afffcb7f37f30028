// SPDX-License-Identifier: Apache-2.0
// The rules by which each NCCL version treats a tuner plugin. docs/design/plugin-host.md gives the
// source of each fact.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "abi/tuner.h"
#include "common/nccl_version.h"

namespace nccltune::host {

// NCCL's collectives, algorithms and protocols: their numbers and their names in nccltune.

// Return names such as "allreduce", "tree", "ll128"; "?" for a number that NCCL does not have.
std::string_view CollectiveName(int collective);
std::string_view AlgorithmName(int algorithm);
std::string_view ProtocolName(int protocol);

std::optional<int> CollectiveByName(std::string_view name);

// An algorithm with a protocol, which is one entry of the cost table.
struct Combination {
  int algorithm = -1;
  int protocol = -1;

  bool known() const { return algorithm >= 0 && protocol >= 0; }
  bool operator==(const Combination&) const = default;
};

// Return a name such as "tree/ll128", and the combination of such a name; nullopt if the name is
// unknown.
std::string CombinationName(Combination combination);
std::optional<Combination> CombinationByName(std::string_view name);

// The way in which NCCL picks algorithm and protocol after the plugin has answered.
enum class Selection {
  kPluginDirect,      // 2.21: the combination that the v2 plugin names, unchecked
  kLeastNotNegative,  // 2.22-2.30: least cost >= 0 in the table; of equal costs, the first
  // From 2.31: least cost, which may be negative, of the entries that NCCL offered; of equal costs,
  // the last in the table.
  kLeastOfOffered,
};

// The way in which NCCL uses a channel count from the plugin.
enum class ChannelRule {
  kReplaces,  // up to 2.30: any count except 0 replaces NCCL's own
  kCaps,      // from 2.31: a count above 0 is an upper bound; other values are ignored
};

// The values of the model constants that NCCL passes to init (interface v5 and later), and the
// effect of changes that the plugin makes to them.
enum class ConstantsRule {
  kNone,             // up to 2.27: init has no such argument
  kDefaultsKept,     // 2.28-2.30: NCCL's defaults; changes affect all later predictions
  kZerosAndDropped,  // from 2.31: zeros, which NCCL overwrites with its defaults after init
};

struct NcclRules {
  int since_minor;       // the first minor version 2.x with these rules
  int native_interface;  // newest tuner interface that NCCL accepts; the oldest is v2
  int algorithms;        // rows of the cost table
  Selection selection;
  float cost_limit;  // NCCL never picks an entry with this cost or a higher one
  // True for 2.22 and 2.23: if no entry is usable, NCCL runs a combination that is not in the
  // table.
  bool last_resort;
  int max_channels;  // MAXCHANNELS: the most channels of a communicator
  ChannelRule channels;
  ConstantsRule constants;
  bool multi_node_nvls_gather;  // true: NVLS can run all-gather and reduce-scatter across nodes
};

// Returns the rules of a version. Returns null below 2.21, because those versions use interface v1
// only. For a version newer than any known, returns the newest rules and sets `exact` to false.
const NcclRules* RulesFor(NcclVersion version, bool* exact);

// The limits that NCCL applies to a chunk size from a plugin (interface v6, NCCL 2.30 and later).

struct ChunkLimits {
  size_t largest;  // in bytes; NCCL reduces larger requests to this size
  size_t grain;    // in bytes; NCCL rounds the result down to a multiple of this
};

// Returns the limits with NCCL's default buffer sizes (NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE,
// NCCL_LL128_BUFFSIZE unset). Source: calcCollChunking in src/enqueue.cc of 2.30.7.
ChunkLimits LimitsOfChunk(int collective, Combination combination);

// Returns the chunk size that NCCL uses after applying the limits.
size_t FinalChunk(size_t asked, const ChunkLimits& limits);

}  // namespace nccltune::host
