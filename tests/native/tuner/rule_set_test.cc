// SPDX-License-Identifier: Apache-2.0
#include "tuner/rule_set.h"
#include "abi/tuner.h"
#include "common/vocabulary.h"
#include "testing.h"
#include "tuner/config.h"
#include "tuner/decision.h"
#include "tuner/first_match.h"

namespace nccltune::tuner {
namespace {

RuleCounts CountsOf(std::string_view content, Scale scale, bool tells_registered = true) {
  return RuleSet(ParseConfig(content).rules, scale, tells_registered).counts();
}

TEST(RuleSet, SortsOutOtherScales) {
  const RuleCounts counts = CountsOf(
      "allreduce,0,9,tree,ll,-1,4,32\n"   // this one
      "allreduce,0,9,ring,ll,-1,-1,32\n"  // any nodes
      "allreduce,0,9,nvls,ll,-1,4,-1\n"   // any ranks
      "allreduce,0,9,pat,ll,-1,2,32\n"    // other nodes
      "allreduce,0,9,pat,ll,-1,4,16\n",   // other ranks
      {4, 32});
  EXPECT_EQ(counts.total, 5U);
  EXPECT_EQ(counts.applied, 3U);
  EXPECT_EQ(counts.other_scale, 2U);
  EXPECT_EQ(counts.shadowed, 0U);
}

TEST(RuleSet, CountsWhatNoCallCanReach) {
  const RuleCounts counts = CountsOf(
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,-1,4096\n"
      "allreduce,2,7,tree,ll,8,-1,-1,-1,-1,8192\n"  // same pair, covered
      "allreduce,5,12,tree,ll,8,-1,-1\n"            // reaches further
      "allgather,2,7,tree,ll,-1,-1,-1\n"            // another collective
      "allreduce,2,7,tree,ll,-1,-1,-1,2,1,4096\n"   // another condition
      "allreduce,0,9,ring,ll,8,4,32,-1,-1,4096\n",  // another scale
      {1, 8});
  EXPECT_EQ(counts.shadowed, 1U);
  EXPECT_EQ(counts.applied, 4U);
  EXPECT_EQ(counts.with_channels, 1U);
  EXPECT_EQ(counts.with_chunk, 2U);
}

TEST(RuleSet, RowsOnRegistrationNeedAnInterfaceThatPassesIt) {
  const char* const content =
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,1\n"
      "allreduce,0,9,tree,ll,-1,-1,-1,-1,-1\n";
  EXPECT_EQ(CountsOf(content, {1, 8}, true).unknown_registration, 0U);
  EXPECT_EQ(CountsOf(content, {1, 8}, true).applied, 2U);
  EXPECT_EQ(CountsOf(content, {1, 8}, false).unknown_registration, 1U);
  EXPECT_EQ(CountsOf(content, {1, 8}, false).applied, 1U);
}

TEST(RuleSet, KnowsOnlyTheCollectivesOfATuner) {
  const RuleSet rules;
  EXPECT_NE(rules.TableOf(abi::kBroadcast), nullptr);
  EXPECT_NE(rules.TableOf(abi::kAllReduce), nullptr);
  EXPECT_EQ(rules.TableOf(5), nullptr);
  EXPECT_EQ(rules.TableOf(-1), nullptr);
}

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

const auto kEverything = [](int, int) { return true; };

Rule MakeRule(uint32_t line, uint64_t min_bytes, uint64_t max_bytes, int algorithm = abi::kTree,
              int protocol = abi::kLl) {
  Rule rule;
  rule.line = line;
  rule.min_bytes = min_bytes;
  rule.max_bytes = max_bytes;
  rule.collective = abi::kAllReduce;
  rule.algorithm = static_cast<uint8_t>(algorithm);
  rule.protocol = static_cast<uint8_t>(protocol);
  return rule;
}

LookupTable Built(const std::vector<Rule>& rules) {
  std::vector<bool> used(rules.size());
  return {rules, &used};
}

uint32_t LineAt(const LookupTable& table, uint64_t bytes) {
  const Candidate* const found = table.Find(bytes, 1, 0, kEverything);
  return found == nullptr ? 0 : found->order;
}

TEST(LookupTable, EmptyFindsNothing) {
  EXPECT_EQ(LookupTable().Find(0, 1, 0, kEverything), nullptr);
  EXPECT_TRUE(Built({}).empty());
  EXPECT_EQ(Built({}).Find(kMax, 1, 0, kEverything), nullptr);
}

TEST(LookupTable, ChunkSizesStandBesideTheirCandidates) {
  std::vector<Rule> rules = {MakeRule(1, 0, 9), MakeRule(2, 10, 19), MakeRule(3, 20, 29)};
  EXPECT_FALSE(Built(rules).has_chunks());
  EXPECT_EQ(Built(rules).ChunkOf(nullptr), 0U);
  rules[1].chunk_bytes = kLargestChunk;
  const LookupTable table = Built(rules);
  ASSERT_TRUE(table.has_chunks());
  EXPECT_EQ(table.ChunkOf(table.Find(5, 1, 0, kEverything)), 0U);
  EXPECT_EQ(table.ChunkOf(table.Find(15, 1, 0, kEverything)), kLargestChunk);
  EXPECT_EQ(table.ChunkOf(table.Find(25, 1, 0, kEverything)), 0U);
  EXPECT_EQ(table.ChunkOf(table.Find(35, 1, 0, kEverything)), 0U);
}

TEST(LookupTable, AShadowedChunkSizeIsNone) {
  std::vector<Rule> rules = {MakeRule(1, 0, 9), MakeRule(2, 0, 9)};
  rules[1].chunk_bytes = 4096;
  EXPECT_FALSE(Built(rules).has_chunks());
}

TEST(LookupTable, AdjacentEqualSegmentsAreMerged) {
  std::vector<Rule> rules = {MakeRule(1, 0, kMax)};
  for (uint32_t i = 0; i < 100; ++i) rules.push_back(MakeRule(i + 2, i, 2 * i));
  std::vector<bool> used(rules.size());
  const LookupTable table(rules, &used);
  EXPECT_EQ(table.segments(), 1U);
  EXPECT_EQ(std::count(used.begin(), used.end(), true), 1);
}

// Returns sizes that often lie at the edge of a range.
uint64_t RandomSize(std::mt19937_64* random) {
  constexpr uint64_t kEdges[] = {0, 1, 1024, 1025, 65536, uint64_t{1} << 40U, kMax - 1, kMax};
  switch ((*random)() % 3) {
    case 0:
      return kEdges[(*random)() % std::size(kEdges)];
    case 1:
      return (*random)() % 200;
    default:
      return (*random)() >> ((*random)() % 64);
  }
}

std::vector<Rule> RandomRules(std::mt19937_64* random, size_t count, bool with_conditions,
                              bool with_chunks = false) {
  std::vector<Rule> rules;
  for (size_t i = 0; i < count; ++i) {
    uint64_t low = RandomSize(random);
    uint64_t high = RandomSize(random);
    if (low > high) std::swap(low, high);
    Rule rule = MakeRule(static_cast<uint32_t>(i + 1), low, high,
                         static_cast<int>((*random)() % abi::kNumAlgorithms),
                         static_cast<int>((*random)() % abi::kNumProtocols));
    rule.channels = static_cast<uint8_t>((*random)() % (kMostChannels + 1));
    if (with_chunks && (*random)() % 2 == 0)
      rule.chunk_bytes = 1 + static_cast<uint32_t>((*random)() % kLargestChunk);
    if (with_conditions) {
      rule.pipe_ops = static_cast<int32_t>((*random)() % 4) - 1;
      if (rule.pipe_ops == 0) rule.pipe_ops = kAny;
      rule.registered = static_cast<int8_t>(static_cast<int>((*random)() % 3) - 1);
    }
    rules.push_back(rule);
  }
  return rules;
}

// Each rule set: its edges, their neighbours and random sizes, with random sets of usable pairs.
void CompareWithFirstMatch(std::mt19937_64* random, const std::vector<Rule>& rules) {
  const LookupTable table = Built(rules);
  std::set<uint64_t> sizes = {0, kMax};
  for (const Rule& rule : rules) {
    for (const uint64_t edge : {rule.min_bytes, rule.max_bytes}) {
      sizes.insert(edge);
      if (edge > 0) sizes.insert(edge - 1);
      if (edge < kMax) sizes.insert(edge + 1);
    }
  }
  for (int i = 0; i < 20; ++i) sizes.insert(RandomSize(random));
  for (const uint64_t bytes : sizes) {
    const uint64_t mask = (*random)() | (*random)();
    const auto usable = [mask](int a, int p) {
      return (mask >> static_cast<unsigned>(a * abi::kNumProtocols + p) & 1U) != 0;
    };
    Call call;
    call.collective = abi::kAllReduce;
    call.bytes = bytes;
    call.pipe_ops = 1 + static_cast<int>((*random)() % 3);
    call.registered = static_cast<int>((*random)() % 3) - 1;
    const Rule* const expected = FirstMatch(rules, call, Scale{1, 8}, usable);
    const Candidate* const found = table.Find(bytes, call.pipe_ops, call.registered, usable);
    ASSERT_EQ(found == nullptr, expected == nullptr) << "bytes " << bytes;
    if (expected == nullptr) continue;
    // Among rows with the same pair the first one wins, even if conditions differ.
    ASSERT_EQ(found->order, expected->line) << "bytes " << bytes;
    ASSERT_EQ(found->algorithm, expected->algorithm);
    ASSERT_EQ(found->protocol, expected->protocol);
    ASSERT_EQ(found->channels, expected->channels);
    ASSERT_EQ(table.ChunkOf(found), expected->chunk_bytes);
  }
}

TEST(LookupTable, AgreesWithPlainFirstMatch) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const size_t count = 1 + random() % 40;
    CompareWithFirstMatch(&random, RandomRules(&random, count, seed % 2 == 0, seed % 3 == 0));
    if (HasFatalFailure()) return;
  }
}

TEST(LookupTable, UsedRulesAreThoseThatSomeCallCanReach) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<Rule> rules = RandomRules(&random, 30, false);
    std::vector<bool> used(rules.size());
    const LookupTable table(rules, &used);
    for (size_t i = 0; i < rules.size(); ++i) {
      // Reachable: at some edge of any rule inside its range no earlier row has its pair.
      bool reachable = false;
      for (const Rule& other : rules) {
        for (const uint64_t bytes : {rules[i].min_bytes, other.max_bytes + 1}) {
          if (bytes < rules[i].min_bytes || bytes > rules[i].max_bytes) continue;
          reachable |= std::none_of(
              rules.begin(), rules.begin() + static_cast<ptrdiff_t>(i), [&](const Rule& earlier) {
                return earlier.algorithm == rules[i].algorithm &&
                       earlier.protocol == rules[i].protocol && earlier.min_bytes <= bytes &&
                       bytes <= earlier.max_bytes;
              });
        }
      }
      ASSERT_EQ(used[i], reachable) << "round " << round << " rule " << i;
    }
  }
}

TEST(LookupTable, HundredThousandOverlappingRowsStaySmall) {
  // Nested ranges over all 21 pairs: every edge changes the set of rules that cover a size.
  constexpr uint32_t kRows = 100000;
  std::vector<Rule> rules;
  for (uint32_t i = 0; i < kRows; ++i) {
    rules.push_back(MakeRule(i + 1, i, uint64_t{4} * kRows - i, static_cast<int>(i % 7),
                             static_cast<int>(i / 7 % 3)));
  }
  std::reverse(rules.begin(), rules.end());
  for (uint32_t i = 0; i < kRows; ++i) rules[i].line = i + 1;
  std::vector<bool> used(rules.size());
  const LookupTable table(rules, &used);
  EXPECT_EQ(std::count(used.begin(), used.end(), true), static_cast<ptrdiff_t>(kRows));
  EXPECT_LE(table.segments(), size_t{2} * kRows + 1);
  EXPECT_EQ(LineAt(table, 0), kRows);
  EXPECT_EQ(LineAt(table, kRows - 1), 1U);
}

TEST(LookupTable, AsManyConditionsAsRows) {
  std::vector<Rule> rules;
  for (uint32_t i = 0; i < 20000; ++i) {
    rules.push_back(MakeRule(i + 1, 0, kMax));
    rules.back().pipe_ops = static_cast<int32_t>(i + 1);
  }
  const LookupTable table = Built(rules);
  EXPECT_EQ(table.segments(), rules.size());
  EXPECT_EQ(table.Find(5, 12345, 0, kEverything)->order, 12345U);
  EXPECT_EQ(table.Find(5, 20001, 0, kEverything), nullptr);
}

// No NCCL up to 2.32 has such a table. The number of protocols is an argument all the same.
TEST(TableOffer, RowsHaveTheLengthThatNcclPasses) {
  constexpr int kLength = abi::kNumProtocols + 1;
  constexpr size_t kPlace = size_t{abi::kNvls} * kLength + abi::kSimple;
  std::array<float, size_t{abi::kNumAlgorithms} * kLength> table;
  table.fill(abi::kIgnore);
  table[kPlace] = 7.0F;
  auto expected = table;
  expected[kPlace] = 0.0F;
  const TableOffer offer(table.data(), abi::kNumAlgorithms, kLength);
  EXPECT_TRUE(offer.CanRun(abi::kNvls, abi::kSimple));
  EXPECT_FALSE(offer.CanRun(abi::kNvls, abi::kLl128));
  offer.Take(abi::kNvls, abi::kSimple);
  EXPECT_EQ(table, expected);
}

TEST(TableOffer, OneProtocolMakesOneColumn) {
  std::array<float, 3> table = {5.0F, 6.0F, 7.0F};
  const TableOffer offer(table.data(), 3, 1);
  EXPECT_TRUE(offer.CanRun(abi::kCollnetDirect, abi::kLl));
  EXPECT_FALSE(offer.CanRun(abi::kTree, abi::kLl128));
  EXPECT_FALSE(offer.CanRun(abi::kCollnetChain, abi::kLl));
}

WithoutTable Facts(int collective, size_t nodes, bool collnet, bool nvls, bool measured_here) {
  WithoutTable facts;
  facts.collective = collective;
  facts.scale = {nodes, nodes * 8};
  facts.collnet_support = collnet ? 1 : 0;
  facts.nvls_support = nvls ? 1 : 0;
  facts.measured_here = measured_here;
  return facts;
}

std::set<std::string> Runnable(const WithoutTable& facts) {
  std::set<std::string> pairs;
  for (int a = 0; a < abi::kNumAlgorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) {
      if (!CanRunWithoutTable(facts, a, p)) continue;
      pairs.insert(std::string(AlgorithmNames()[static_cast<size_t>(a)]) + "/" +
                   std::string(ProtocolNames()[static_cast<size_t>(p)]));
    }
  }
  return pairs;
}

using Pairs = std::set<std::string>;
const Pairs kRingOnly = {"ring/ll", "ring/simple"};
const Pairs kRingMeasured = {"ring/ll", "ring/ll128", "ring/simple"};

Pairs With(Pairs pairs, const Pairs& more) {
  pairs.insert(more.begin(), more.end());
  return pairs;
}

TEST(SupportMatrix, BroadcastAndReduceHaveRingAlone) {
  for (const int collective : {abi::kBroadcast, abi::kReduce}) {
    for (const size_t nodes : {1U, 4U}) {
      EXPECT_EQ(Runnable(Facts(collective, nodes, true, true, false)), kRingOnly);
      EXPECT_EQ(Runnable(Facts(collective, nodes, true, true, true)), kRingMeasured);
    }
  }
}

TEST(SupportMatrix, AllReduce) {
  const Pairs tree_and_ring = With(kRingOnly, {"tree/ll", "tree/simple"});
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 1, false, false, false)), tree_and_ring);
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 1, false, true, false)),
            With(tree_and_ring, {"nvls/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, false, true, false)),
            With(tree_and_ring, {"nvls_tree/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, true, false, false)),
            With(tree_and_ring, {"collnet_chain/simple"}));
  EXPECT_EQ(Runnable(Facts(abi::kAllReduce, 4, true, true, true)),
            With(tree_and_ring, {"ring/ll128", "tree/ll128", "nvls/simple", "nvls_tree/simple",
                                 "collnet_chain/simple", "collnet_direct/simple"}));
}

TEST(SupportMatrix, AllGatherAndReduceScatter) {
  for (const int collective : {abi::kAllGather, abi::kReduceScatter}) {
    EXPECT_EQ(Runnable(Facts(collective, 1, false, true, false)), With(kRingOnly, {"nvls/simple"}));
    EXPECT_EQ(Runnable(Facts(collective, 2, true, true, false)), kRingOnly);
    EXPECT_EQ(Runnable(Facts(collective, 2, true, true, true)),
              With(kRingMeasured, {"collnet_direct/simple"}));
  }
}

TEST(SupportMatrix, NothingWhereTheAnswerCannotBeKnown) {
  WithoutTable facts = Facts(abi::kAllReduce, 2, true, true, true);
  facts.filtered = true;
  EXPECT_TRUE(Runnable(facts).empty());
  facts.filtered = false;
  facts.scale.ranks = 1;
  EXPECT_TRUE(Runnable(facts).empty());
}

TEST(SupportMatrix, OnlyOneMeansYes) {
  // NCCL 2.21 tests its flags for 1 exactly.
  WithoutTable facts = Facts(abi::kAllReduce, 1, false, false, false);
  facts.nvls_support = 2;
  EXPECT_FALSE(CanRunWithoutTable(facts, abi::kNvls, abi::kSimple));
}

}  // namespace
}  // namespace nccltune::tuner
