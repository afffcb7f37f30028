// SPDX-License-Identifier: Apache-2.0
#include "host/nccl_rules.h"

#include <algorithm>
#include <cfloat>
#include <cstddef>

#include "common/vocabulary.h"

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

namespace {

std::string_view NameOf(Words words, int number) {
  const auto index = static_cast<size_t>(number);
  return number >= 0 && index < words.size() ? words[index] : "?";
}

}  // namespace

std::string_view CollectiveName(int collective) { return NameOf(CollectiveNames(), collective); }
std::string_view AlgorithmName(int algorithm) { return NameOf(AlgorithmNames(), algorithm); }
std::string_view ProtocolName(int protocol) { return NameOf(ProtocolNames(), protocol); }

std::optional<int> CollectiveByName(std::string_view name) {
  return NumberOf(CollectiveNames(), name);
}

std::string CombinationName(Combination combination) {
  std::string name(AlgorithmName(combination.algorithm));
  name += '/';
  name += ProtocolName(combination.protocol);
  return name;
}

std::optional<Combination> CombinationByName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<int> algorithm = NumberOf(AlgorithmNames(), name.substr(0, slash));
  const std::optional<int> protocol = NumberOf(ProtocolNames(), name.substr(slash + 1));
  if (!algorithm || !protocol) return std::nullopt;
  return Combination{*algorithm, *protocol};
}

namespace {

constexpr size_t kSteps = 8;  // NCCL_STEPS, the number of slots in each buffer
constexpr size_t kLlBuffer = 512 << 10;
constexpr size_t kLl128Buffer = 4800 << 10;
constexpr size_t kSimpleBuffer = 4 << 20;

}  // namespace

ChunkLimits LimitsOfChunk(int collective, Combination combination) {
  switch (combination.protocol) {
    case abi::kLl:
      return {kLlBuffer / kSteps / 2, 16};  // half of each line holds flags
    case abi::kLl128:
      return {kLl128Buffer / kSteps / 16 * 15, 1920};  // in each line, one word of 16 is a flag
    default: {
      const bool piped = collective != abi::kBroadcast && collective != abi::kReduce;
      const size_t slots = combination.algorithm == abi::kRing && piped ? kSteps / 2 : 1;
      return {kSimpleBuffer / kSteps * slots, 512};
    }
  }
}

size_t FinalChunk(size_t asked, const ChunkLimits& limits) {
  return std::min(asked, limits.largest) / limits.grain * limits.grain;
}

}  // namespace nccltune::host
