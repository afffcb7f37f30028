// SPDX-License-Identifier: Apache-2.0
#include "host/nccl_rules.h"

#include <cfloat>

namespace nccltune::host {
namespace {

constexpr float kOneHourUs = 3600000000.0f;
constexpr int kNewestMinor = 32;

// Taken from the tagged sources up to 2.30.7 and from the 2.31 development branch. The sources of
// 2.32 were not read; the rules assume that 2.32 acts like 2.31 with interface v7.
constexpr NcclRules kRules[] = {
    {.since_minor = 21,
     .native_interface = 2,
     .algorithms = 6,
     .selection = Selection::kPluginDirect,
     .cost_limit = kOneHourUs,
     .last_resort = false,
     .max_channels = 32,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = false},
    {.since_minor = 22,
     .native_interface = 3,
     .algorithms = 6,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = true,
     .max_channels = 32,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = false},
    {.since_minor = 23,
     .native_interface = 3,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = true,
     .max_channels = 32,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = false},
    {.since_minor = 24,
     .native_interface = 4,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = false,
     .max_channels = 32,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = false},
    {.since_minor = 25,
     .native_interface = 4,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = false},
    {.since_minor = 27,
     .native_interface = 4,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kNone,
     .multi_node_nvls_gather = true},
    {.since_minor = 28,
     .native_interface = 5,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = kOneHourUs,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kDefaultsKept,
     .multi_node_nvls_gather = true},
    {.since_minor = 29,
     .native_interface = 5,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = FLT_MAX,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kDefaultsKept,
     .multi_node_nvls_gather = true},
    {.since_minor = 30,
     .native_interface = 6,
     .algorithms = 7,
     .selection = Selection::kLeastNotNegative,
     .cost_limit = FLT_MAX,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kReplaces,
     .constants = ConstantsRule::kDefaultsKept,
     .multi_node_nvls_gather = true},
    {.since_minor = 31,
     .native_interface = 6,
     .algorithms = 7,
     .selection = Selection::kLeastOfOffered,
     .cost_limit = FLT_MAX,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kCaps,
     .constants = ConstantsRule::kZerosAndDropped,
     .multi_node_nvls_gather = true},
    {.since_minor = 32,
     .native_interface = 7,
     .algorithms = 7,
     .selection = Selection::kLeastOfOffered,
     .cost_limit = FLT_MAX,
     .last_resort = false,
     .max_channels = 64,
     .channels = ChannelRule::kCaps,
     .constants = ConstantsRule::kZerosAndDropped,
     .multi_node_nvls_gather = true},
};

}  // namespace

const NcclRules* RulesFor(NcclVersion version, bool* exact) {
  *exact = version.major == 2 && version.minor <= kNewestMinor;
  const NcclRules* found = nullptr;
  for (const NcclRules& rules : kRules) {
    if (version.major > 2 || (version.major == 2 && version.minor >= rules.since_minor)) {
      found = &rules;
    }
  }
  return found;
}

}  // namespace nccltune::host
