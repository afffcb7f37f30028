// SPDX-License-Identifier: Apache-2.0
#include "host/cost_table.h"
#include "abi/tuner.h"
#include "host/model_constants.h"
#include "host/nccl_rules.h"
#include "testing.h"

namespace nccltune::host {
namespace {

const NcclRules& Rules(int minor) {
  bool exact = false;
  return *RulesFor({2, minor, 0}, &exact);
}

CostTable Table(std::initializer_list<std::pair<const char*, float>> entries, int rows = 7) {
  CostTable table(rows);
  for (const auto& [name, cost] : entries) table.at(CombinationByName(name).value()) = cost;
  return table;
}

std::string PickOf(int minor, const CostTable& offered, const CostTable& answered) {
  const Combination pick = Pick(Rules(minor), offered, answered);
  return pick.known() ? CombinationName(pick) : "none";
}

// Lists all usable entries: "tree/ll tree/ll128 ...".
std::string Usable(int minor, int collective, const Platform& platform) {
  std::string names;
  const CostTable table = NominalTable(Rules(minor), collective, platform);
  ForEachEntry(table, [&](Combination c) {
    if (table.at(c) == abi::kIgnore) return;
    EXPECT_EQ(table.at(c), kNominalCostUs);
    names += (names.empty() ? "" : " ") + CombinationName(c);
  });
  return names;
}

constexpr int kListed[] = {22, 23, 24, 27, 28, 29, 30};

TEST(Pick, TakesTheLeastCostAndTheLowestNumberOfEqualOnesUntil230TheHighestFrom231) {
  const CostTable table = Table({{"tree/ll", 12}, {"ring/ll128", 7.5}, {"nvls/simple", 9}});
  const CostTable ties =
      Table({{"tree/ll128", 5}, {"tree/simple", 5}, {"ring/ll", 5}, {"nvls_tree/simple", 5}});
  for (const int minor : {22, 23, 24, 27, 28, 29, 30, 31, 32}) {
    EXPECT_EQ(PickOf(minor, table, table), "ring/ll128") << minor;
    EXPECT_EQ(PickOf(minor, ties, ties), minor < 31 ? "tree/ll128" : "nvls_tree/simple") << minor;
  }
}

TEST(Pick, TakesANegativeCostForUnusableUntil230AndForTheBestFrom231) {
  const CostTable offered = Table({{"tree/ll", 5}, {"ring/ll", 6}, {"ring/simple", 7}});
  CostTable answered = offered;
  answered.at({abi::kRing, abi::kSimple}) = abi::kIgnore;
  answered.at({abi::kTree, abi::kLl}) = -0.5f;
  for (const int minor : kListed) EXPECT_EQ(PickOf(minor, offered, answered), "ring/ll") << minor;
  EXPECT_EQ(PickOf(31, offered, answered), "ring/simple");
}

TEST(Pick, FindsNothingInATableOfUnusableEntries) {
  const CostTable offered = Table({{"ring/ll", 6}});
  const CostTable none;
  for (const int minor : kListed) EXPECT_EQ(PickOf(minor, offered, none), "none") << minor;
  // From 2.31 on -1 is a valid cost, so the offered entry is picked.
  EXPECT_EQ(PickOf(31, offered, none), "ring/ll");
  EXPECT_EQ(PickOf(31, none, none), "none");
}

TEST(Pick, NeverTakesNotANumberNorInfinity) {
  const CostTable offered = Table({{"tree/ll", 5}, {"ring/ll", 6}, {"ring/simple", 7}});
  CostTable answered = offered;
  answered.at({abi::kTree, abi::kLl}) = std::numeric_limits<float>::quiet_NaN();
  answered.at({abi::kRing, abi::kLl}) = std::numeric_limits<float>::infinity();
  for (const int minor : {22, 28, 30, 31}) {
    EXPECT_EQ(PickOf(minor, offered, answered), "ring/simple") << minor;
  }
  answered.at({abi::kRing, abi::kSimple}) = std::numeric_limits<float>::quiet_NaN();
  for (const int minor : {22, 28, 30, 31}) {
    EXPECT_EQ(PickOf(minor, offered, answered), "none") << minor;
  }
}

TEST(Pick, HasTheLimitOfAnHourUntil228) {
  const CostTable table = Table({{"ring/ll", 3.7e9f}});
  EXPECT_EQ(PickOf(28, table, table), "none");
  EXPECT_EQ(PickOf(29, table, table), "ring/ll");
}

TEST(NominalTable, HoldsTheCombinationsOfACollective) {
  const Platform one{.nodes = 1, .ranks = 8, .min_ranks_per_node = 8, .max_ranks_per_node = 8};
  EXPECT_EQ(Usable(30, abi::kBroadcast, one), "ring/ll ring/ll128 ring/simple");
  EXPECT_EQ(Usable(30, abi::kReduce, one), "ring/ll ring/ll128 ring/simple");
  EXPECT_EQ(Usable(30, abi::kAllGather, one), "ring/ll ring/ll128 ring/simple nvls/simple");
  EXPECT_EQ(Usable(30, abi::kAllReduce, one),
            "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple nvls/simple");
  const Platform four{.nodes = 4, .ranks = 32, .min_ranks_per_node = 8, .max_ranks_per_node = 8};
  EXPECT_EQ(Usable(30, abi::kAllReduce, four),
            "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple collnet_direct/simple "
            "collnet_chain/simple nvls/simple nvls_tree/simple");
  EXPECT_EQ(Usable(30, abi::kReduceScatter, four),
            "ring/ll ring/ll128 ring/simple collnet_direct/simple nvls/simple");
  EXPECT_EQ(Usable(26, abi::kReduceScatter, four),
            "ring/ll ring/ll128 ring/simple collnet_direct/simple");
}

TEST(NominalTable, OmitsWhatThePlatformLacks) {
  Platform four{.nodes = 4, .ranks = 32, .min_ranks_per_node = 8, .max_ranks_per_node = 8};
  four.collnet = false;
  EXPECT_EQ(Usable(30, abi::kAllReduce, four),
            "tree/ll tree/ll128 tree/simple ring/ll ring/ll128 ring/simple nvls_tree/simple");
  four.nvls = false;
  four.ll128 = false;
  EXPECT_EQ(Usable(30, abi::kAllReduce, four), "tree/ll tree/simple ring/ll ring/simple");
  const Platform wide{.nodes = 2, .ranks = 32, .min_ranks_per_node = 16, .max_ranks_per_node = 16};
  EXPECT_EQ(Usable(27, abi::kAllGather, wide), "ring/ll ring/ll128 ring/simple nvls/simple");
  EXPECT_EQ(Usable(22, abi::kAllGather, wide),
            "ring/ll ring/ll128 ring/simple collnet_direct/simple");
}

TEST(NominalTable, HasPatFrom223ForOneRankANode) {
  const Platform thin{.nodes = 4,
                      .ranks = 4,
                      .min_ranks_per_node = 1,
                      .max_ranks_per_node = 1,
                      .nvls = false,
                      .collnet = false};
  EXPECT_EQ(Usable(22, abi::kAllGather, thin), "ring/ll ring/ll128 ring/simple");
  EXPECT_EQ(Usable(23, abi::kAllGather, thin), "ring/ll ring/ll128 ring/simple pat/simple");
  EXPECT_EQ(Usable(32, abi::kReduceScatter, thin), "ring/ll ring/ll128 ring/simple pat/simple");
  EXPECT_EQ(Usable(32, abi::kBroadcast, thin), "ring/ll ring/ll128 ring/simple");
}

TEST(Names, GoBothWays) {
  EXPECT_EQ(CombinationName({abi::kCollnetDirect, abi::kLl128}), "collnet_direct/ll128");
  EXPECT_EQ(CombinationName({-1, 3}), "?/?");
  EXPECT_EQ(CombinationByName("nvls_tree/simple"), (Combination{abi::kNvlsTree, abi::kSimple}));
  for (const char* bad : {"", "tree", "tree/", "/ll", "Tree/ll", "tree/ll/4", "tree/ll "}) {
    EXPECT_EQ(CombinationByName(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(CollectiveByName("allgather"), abi::kAllGather);
  EXPECT_EQ(CollectiveByName("alltoall"), std::nullopt);
}

const NcclRules& ExactRules(int minor) {
  bool exact = false;
  const NcclRules* rules = RulesFor({2, minor, 3}, &exact);
  EXPECT_NE(rules, nullptr) << minor;
  EXPECT_TRUE(exact) << minor;
  return *rules;
}

TEST(NcclRules, KnowWhenBehaviourChanged) {
  for (int minor = 21; minor <= 32; ++minor) {
    const NcclRules& rules = ExactRules(minor);
    EXPECT_EQ(rules.channels, minor < 31 ? ChannelRule::kReplaces : ChannelRule::kCaps);
    EXPECT_EQ(rules.constants, minor < 28   ? ConstantsRule::kNone
                               : minor < 31 ? ConstantsRule::kDefaultsKept
                                            : ConstantsRule::kZerosAndDropped);
    EXPECT_EQ(rules.selection, minor < 22   ? Selection::kPluginDirect
                               : minor < 31 ? Selection::kLeastNotNegative
                                            : Selection::kLeastOfOffered);
    EXPECT_EQ(rules.last_resort, minor == 22 || minor == 23);
    EXPECT_EQ(rules.algorithms, minor < 23 ? 6 : 7);
  }
}

TEST(NcclRules, EndWithTheNewestKnownVersion) {
  bool exact = true;
  EXPECT_EQ(RulesFor({2, 20, 5}, &exact), nullptr);
  EXPECT_EQ(RulesFor({1, 30, 0}, &exact), nullptr);
  const NcclRules* newest = RulesFor({2, 32, 6}, &exact);
  EXPECT_TRUE(exact);
  EXPECT_EQ(RulesFor({2, 33, 0}, &exact), newest);
  EXPECT_FALSE(exact);
  EXPECT_EQ(RulesFor({3, 0, 0}, &exact), newest);
  EXPECT_FALSE(exact);
}

TEST(ModelConstants, AreThoseOfTheVersion) {
  const abi::TunerConstantsV5 newest = DefaultConstants({2, 30, 7});
  EXPECT_EQ(newest.base_latencies[abi::kTree][abi::kLl], 6.8);
  EXPECT_EQ(newest.hw_latencies[abi::kLinkNet][abi::kRing][abi::kSimple], 14);
  EXPECT_EQ(newest.ll_max_bws[abi::kHopper][abi::kTwoNodes], 45);
  EXPECT_EQ(newest.per_ch_max_nvls_tree_bws[abi::kBlackwell][abi::kFourNodes], 80);
  const auto ring_ll128 = [](NcclVersion version, int scale) {
    return DefaultConstants(version).per_ch_max_ring_ll128_bws[abi::kBlackwell][scale];
  };
  EXPECT_EQ(ring_ll128({2, 28, 3}, abi::kTwoNodes), 73.4);
  EXPECT_EQ(ring_ll128({2, 28, 9}, abi::kTwoNodes), 34.6);
  EXPECT_EQ(ring_ll128({2, 28, 9}, abi::kOneNode), 73.4);
  EXPECT_EQ(ring_ll128({2, 29, 2}, abi::kOneNode), 34.5);
  EXPECT_EQ(ring_ll128({2, 29, 7}, abi::kOneNode), 40);
  const auto nvls_tree = [](NcclVersion version) {
    return DefaultConstants(version).per_ch_max_nvls_tree_bws[abi::kBlackwell][abi::kFourNodes];
  };
  EXPECT_EQ(nvls_tree({2, 28, 7}), 43.1);
  EXPECT_EQ(nvls_tree({2, 28, 9}), 43.8);
  EXPECT_EQ(nvls_tree({2, 29, 7}), 43.8);
}

// Returns the name of the constant at that byte offset of the struct.
template <typename Constants>
std::string NameAt(size_t offset) {
  const std::vector<double> before(sizeof(Constants) / sizeof(double));
  std::vector<double> after = before;
  after[offset / sizeof(double)] = 1;
  const std::vector<ConstantChange> changes = ConstantChanges(before, after);
  EXPECT_EQ(changes.size(), 1u);
  return changes.empty() ? "" : changes[0].name;
}

TEST(ConstantChanges, HaveTheNamesOfNccl) {
  using V5 = abi::TunerConstantsV5;
  using V7 = abi::TunerConstantsV7;
  EXPECT_EQ(NameAt<V5>(0), "baseLatencies[0][0]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, hw_latencies[2][6][1])), "hwLatencies[2][6][1]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, ll_max_bws[3][2])), "llMaxBws[3][2]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, per_ch_max_nvls_tree_bws[3][2])), "perChMaxNVLSTreeBws[3][2]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, ll_max_bws[4][2])), "llMaxBws[4][2]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, per_ch_max_tree_bws[0][1])), "perChMaxTreeBws[0][1]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, per_ch_max_nvls_tree_bws[4][2])), "perChMaxNVLSTreeBws[4][2]");
}

TEST(ConstantChanges, AreNoneForNoConstants) {
  const GuardedBytes nothing("model constants", 0);
  EXPECT_TRUE(ConstantChanges(ConstantValues(nothing), ConstantValues(nothing)).empty());
}

}  // namespace
}  // namespace nccltune::host
