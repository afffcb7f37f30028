// SPDX-License-Identifier: Apache-2.0
// How each NCCL version treats a tuner plugin. docs/design/plugin-host.md says where each fact is
// from.
#ifndef NCCLTUNE_HOST_NCCL_RULES_H_
#define NCCLTUNE_HOST_NCCL_RULES_H_

#include "common/nccl_version.h"

namespace nccltune::host {

// How the algorithm and protocol are picked once the plugin has answered.
enum class Selection {
  kPluginDirect,      // 2.21: the v2 plugin names them, NCCL takes them unchecked
  kLeastNotNegative,  // 2.22-2.30: least cost >= 0 of the whole table; ties: lowest number
  kLeastOfOffered,    // 2.31: least cost, negative too, of the entries that NCCL offered as usable;
                      // ties: highest number
};

// What a channel count from the plugin does.
enum class ChannelRule {
  kReplaces,  // to 2.30: any count but 0 takes the place of NCCL's own
  kCaps,      // from 2.31: a count above 0 is an upper bound, any other is passed over
};

// What the model constants of init (interface v5 and later) hold, and what becomes of edits.
enum class ConstantsRule {
  kNone,             // to 2.27: no such argument
  kDefaultsKept,     // 2.28-2.30: NCCL's defaults; edits shape all later predictions
  kZerosAndDropped,  // from 2.31: zeros; NCCL writes its defaults over them after init
};

struct NcclRules {
  int since_minor;       // first 2.x these rules are for
  int native_interface;  // the newest tuner interface; all down to v2 are accepted too
  int algorithms;        // rows of the cost table
  Selection selection;
  float cost_limit;  // an entry at or above it is never picked
  bool last_resort;  // 2.22-2.23: with no usable entry, one that NCCL kept out of the table
  ChannelRule channels;
  ConstantsRule constants;
  bool multi_node_nvls_gather;  // NVLS all-gather and reduce-scatter across nodes
};

// Null below 2.21, where NCCL knew interface v1 only. Above the newest version known the newest
// rules apply; `exact` then is false.
const NcclRules* RulesFor(NcclVersion version, bool* exact);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_NCCL_RULES_H_
