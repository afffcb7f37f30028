// SPDX-License-Identifier: Apache-2.0
// How each NCCL version treats a tuner plugin. docs/design/plugin-host.md gives the source of each
// fact.
#ifndef NCCLTUNE_HOST_NCCL_RULES_H_
#define NCCLTUNE_HOST_NCCL_RULES_H_

#include "common/nccl_version.h"

namespace nccltune::host {

// How NCCL picks algorithm and protocol after the plugin has answered.
enum class Selection {
  kPluginDirect,      // 2.21: what the v2 plugin names, unchecked
  kLeastNotNegative,  // 2.22-2.30: least cost >= 0 of the whole table; on ties the lowest number
  // 2.31: least cost, which may be negative, of the entries that NCCL offered; on ties the highest
  // number.
  kLeastOfOffered,
};

// How NCCL uses a channel count from the plugin.
enum class ChannelRule {
  kReplaces,  // up to 2.30: any count except 0 replaces NCCL's own
  kCaps,      // from 2.31: a count above 0 is an upper bound; others are ignored
};

// What the model constants passed to init hold (interface v5 and later), and what happens to
// changes by the plugin.
enum class ConstantsRule {
  kNone,             // up to 2.27: no such argument
  kDefaultsKept,     // 2.28-2.30: NCCL's defaults; changes affect all later predictions
  kZerosAndDropped,  // from 2.31: zeros, which NCCL overwrites with its defaults after init
};

struct NcclRules {
  int since_minor;       // the first minor version 2.x with these rules
  int native_interface;  // the newest tuner interface; older ones down to v2 are accepted too
  int algorithms;        // rows of the cost table
  Selection selection;
  float cost_limit;  // NCCL never picks an entry with this cost or a higher one
  // 2.22-2.23: without a usable entry, NCCL runs a combination that is not in the table.
  bool last_resort;
  ChannelRule channels;
  ConstantsRule constants;
  bool multi_node_nvls_gather;  // NVLS all-gather and reduce-scatter across nodes
};

// Returns the rules of a version; null below 2.21, which knew interface v1 only. For a version
// newer than any known, returns the newest rules and sets `exact` to false.
const NcclRules* RulesFor(NcclVersion version, bool* exact);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_NCCL_RULES_H_
