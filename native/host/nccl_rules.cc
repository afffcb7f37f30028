// SPDX-License-Identifier: Apache-2.0
#include "host/nccl_rules.h"

#include <algorithm>
#include <cfloat>

#include "common/vocabulary.h"

namespace nccltune::host {
namespace {

constexpr float kOneHourUs = 3600000000.0f;
constexpr int kNewestMinor = 32;

using enum Selection;
using enum ChannelRule;
using enum ConstantsRule;

// The columns are the members of NcclRules in their order. Taken from the tagged sources up to
// 2.30.7 and from the 2.31 development branch. The sources of 2.32 were not read; the rules assume
// that 2.32 acts like 2.31 with interface v7.
constexpr NcclRules kRules[] = {
    {21, 2, 6, kPluginDirect, kOneHourUs, false, 32, kReplaces, kNone, false},
    {22, 3, 6, kLeastNotNegative, kOneHourUs, true, 32, kReplaces, kNone, false},
    {23, 3, 7, kLeastNotNegative, kOneHourUs, true, 32, kReplaces, kNone, false},
    {24, 4, 7, kLeastNotNegative, kOneHourUs, false, 32, kReplaces, kNone, false},
    {25, 4, 7, kLeastNotNegative, kOneHourUs, false, 64, kReplaces, kNone, false},
    {27, 4, 7, kLeastNotNegative, kOneHourUs, false, 64, kReplaces, kNone, true},
    {28, 5, 7, kLeastNotNegative, kOneHourUs, false, 64, kReplaces, kDefaultsKept, true},
    {29, 5, 7, kLeastNotNegative, FLT_MAX, false, 64, kReplaces, kDefaultsKept, true},
    {30, 6, 7, kLeastNotNegative, FLT_MAX, false, 64, kReplaces, kDefaultsKept, true},
    {31, 6, 7, kLeastOfOffered, FLT_MAX, false, 64, kCaps, kZerosAndDropped, true},
    {32, 7, 7, kLeastOfOffered, FLT_MAX, false, 64, kCaps, kZerosAndDropped, true},
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
