// SPDX-License-Identifier: Apache-2.0
#include "host/decision.h"
#include "host/nccl_rules.h"
#include "testing.h"

namespace nccltune::host {
namespace {

constexpr Platform kFourNodes{
    .nodes = 4, .ranks = 32, .min_ranks_per_node = 8, .max_ranks_per_node = 8};
constexpr Combination kTreeLl{abi::kTree, abi::kLl};
constexpr Combination kRingSimple{abi::kRing, abi::kSimple};
constexpr Combination kPatSimple{abi::kPat, abi::kSimple};

// An all-reduce over four nodes. Each test edits the plugin's answer.
struct Case {
  explicit Case(int minor)
      : rules(*RulesFor({2, minor, 0}, &exact)),
        offered(NominalTable(rules, abi::kAllReduce, kFourNodes)),
        answered(offered) {}

  // Uses NCCL's own predictions. ring/simple has the least cost, 5 us.
  void GiveCosts() {
    nominal = false;
    float cost = 30;
    ForEachEntry(offered, [&](Combination c) {
      if (offered.at(c) != abi::kIgnore) offered.at(c) = cost++;
    });
    offered.at(kRingSimple) = 5;
    answered = offered;
  }

  Decision Decide() {
    Decision decision;
    Judge({.rules = rules,
           .offered = offered,
           .answered = answered,
           .nominal = nominal,
           .named = named,
           .channels = channels,
           .channel_limit = limit},
          &decision);
    return decision;
  }

  bool exact = false;
  const NcclRules& rules;
  CostTable offered;
  CostTable answered;
  bool nominal = true;
  Combination named;
  int channels = 0;
  std::optional<int> limit;
};

std::string InWords(const Decision& decision) {
  if (decision.outcome == DecisionResult::kDefault) return "default";
  if (decision.outcome == DecisionResult::kFails) return "fails " + decision.failure->kind;
  const PluginChoice& choice = decision.choice;
  return CombinationName(choice.combination) + " " +
         (choice.channels ? std::to_string(*choice.channels) : "-");
}

std::string Codes(const Decision& decision) {
  std::string codes;
  for (const Warning& warning : decision.warnings) {
    codes += (codes.empty() ? "" : " ") + warning.code;
  }
  return codes;
}

// Returns the answer and, behind a colon, the codes of the warnings.
std::string Verdict(const Decision& decision) {
  const std::string codes = Codes(decision);
  return InWords(decision) + (codes.empty() ? "" : ": " + codes);
}

constexpr int kTabled[] = {22, 23, 24, 27, 28, 29, 30, 31, 32};

TEST(Judge, AnUntouchedTableIsTheDefault) {
  for (const int minor : kTabled) {
    Case a(minor);
    EXPECT_EQ(InWords(a.Decide()), "default") << minor;
    EXPECT_FALSE(a.Decide().selected.known());
    a.GiveCosts();
    const Decision given = a.Decide();
    EXPECT_EQ(InWords(given), "default");
    EXPECT_EQ(given.selected, kRingSimple);
    EXPECT_EQ(Codes(given), "");
  }
}

TEST(Judge, ACostOfZeroIsAChoice) {
  for (const int minor : kTabled) {
    Case a(minor);
    a.answered.at(kTreeLl) = 0;
    const Decision nominal = a.Decide();
    EXPECT_EQ(InWords(nominal), "tree/ll -") << minor;
    EXPECT_EQ(nominal.selected, kTreeLl);
    EXPECT_EQ(Codes(nominal), "");
    ASSERT_EQ(nominal.table_changed.size(), 1u);
    EXPECT_EQ(nominal.table_changed[0].before, kNominalCostUs);
    EXPECT_EQ(nominal.table_changed[0].after, 0);
    a.GiveCosts();
    a.answered.at(kTreeLl) = 0;
    EXPECT_EQ(InWords(a.Decide()), "tree/ll -") << minor;
  }
}

TEST(Judge, ACostAboveZeroNeedsNcclsPredictions) {
  Case a(28);
  a.answered.at(kTreeLl) = 3;
  EXPECT_EQ(Verdict(a.Decide()), "?/? -: undetermined");
  a.GiveCosts();
  a.answered.at(kTreeLl) = 3;
  EXPECT_EQ(InWords(a.Decide()), "tree/ll -");
  a.answered.at(kTreeLl) = 8;
  EXPECT_EQ(Verdict(a.Decide()), "ring/simple -");
}

TEST(Judge, RulingEntriesOutNeedsNcclsPredictionsUnlessOneIsLeft) {
  Case a(28);
  a.answered.at(kRingSimple) = abi::kIgnore;
  EXPECT_EQ(Verdict(a.Decide()), "?/? -: undetermined");
  ForEachEntry(a.offered, [&](Combination c) { a.answered.at(c) = abi::kIgnore; });
  a.answered.at(kTreeLl) = kNominalCostUs;
  EXPECT_EQ(Verdict(a.Decide()), "tree/ll -");
}

TEST(Judge, ATableWithoutUsableEntriesFailsTheCollective) {
  for (const int minor : {24, 27, 28, 29, 30}) {
    Case a(minor);
    a.answered = CostTable();
    EXPECT_EQ(InWords(a.Decide()), "fails no_usable_entry") << minor;
  }
  for (const int minor : {22, 23}) {
    Case a(minor);
    a.answered = CostTable(a.rules.algorithms);
    EXPECT_EQ(Verdict(a.Decide()), "?/? -: last_resort") << minor;
  }
  Case a(31);
  a.answered = CostTable();
  const Decision decision = a.Decide();
  EXPECT_EQ(InWords(decision), "nvls_tree/simple -");
  EXPECT_EQ(decision.warnings.size(), 10u);
  EXPECT_EQ(decision.warnings[0].code, "negative_cost");
}

TEST(Judge, AnUnusableEntryRunsUntil230) {
  for (const int minor : {24, 28, 30}) {
    Case a(minor);
    a.answered.at(kPatSimple) = 0;
    EXPECT_EQ(Verdict(a.Decide()), "pat/simple -: not_usable_written not_usable_selected") << minor;
  }
  Case a(31);
  a.answered.at(kPatSimple) = 0;
  EXPECT_EQ(Verdict(a.Decide()), "?/? -: not_usable_written undetermined");
  a.GiveCosts();
  a.answered.at(kPatSimple) = 0;
  EXPECT_EQ(InWords(a.Decide()), "ring/simple -");
}

TEST(Judge, NotANumberIsReportedAndNeverPicked) {
  Case a(30);
  a.GiveCosts();
  a.answered.at(kRingSimple) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Verdict(a.Decide()), "tree/ll -: not_a_number");
}

TEST(Judge, ChannelsAloneAreAChoiceToo) {
  for (const int minor : kTabled) {
    Case a(minor);
    a.channels = 1;
    EXPECT_EQ(InWords(a.Decide()), "?/? 1") << minor;
    EXPECT_EQ(a.Decide().channels_requested, 1);
    a.GiveCosts();
    a.channels = 1;
    EXPECT_EQ(a.Decide().selected, kRingSimple);
  }
}

TEST(Judge, NegativeChannelsAreTakenUntil230AndPassedOverFrom231) {
  Case before(30);
  before.channels = -3;
  EXPECT_EQ(Verdict(before.Decide()), "?/? -3: negative_channels");
  Case after(31);
  after.channels = -3;
  EXPECT_EQ(Verdict(after.Decide()), "default: negative_channels");
  EXPECT_EQ(after.Decide().channels_requested, -3);
}

TEST(Judge, ChannelsAreLimitedToThoseOfTheCommunicator) {
  Case a(28);
  a.limit = 16;
  a.channels = 32;
  a.answered.at(kTreeLl) = 0;
  EXPECT_EQ(Verdict(a.Decide()), "tree/ll 16: channels_cut");
  a.channels = 16;
  EXPECT_EQ(Verdict(a.Decide()), "tree/ll 16");
  a.channels = 65;
  a.limit.reset();
  EXPECT_EQ(Verdict(a.Decide()), "tree/ll 65: too_many_channels");
}

TEST(Judge, NcclHas32ChannelsUntil224And64From225) {
  for (int minor = 21; minor <= 32; ++minor) {
    Case a(minor);
    a.channels = minor < 25 ? 32 : 64;
    EXPECT_EQ(Codes(a.Decide()), "") << minor;
    ++a.channels;
    EXPECT_EQ(Codes(a.Decide()), "too_many_channels") << minor;
  }
}

TEST(Judge, In221ThePluginsWordIsTaken) {
  Case a(21);
  EXPECT_EQ(InWords(a.Decide()), "default");
  a.named = kTreeLl;
  a.channels = 4;
  EXPECT_EQ(InWords(a.Decide()), "tree/ll 4");
  a.named = {abi::kNvls, abi::kLl};
  EXPECT_EQ(Verdict(a.Decide()), "nvls/ll 4: not_usable_selected");
  a.named = {abi::kRing, abi::kProtocolUndefined};
  EXPECT_EQ(Verdict(a.Decide()), "?/? 4: half_a_choice");
  for (const Combination bad : {Combination{6, 0}, Combination{0, 3}, Combination{-2, 0}}) {
    a.named = bad;
    EXPECT_EQ(InWords(a.Decide()), "fails invalid_choice");
  }
}

}  // namespace
}  // namespace nccltune::host
