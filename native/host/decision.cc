// SPDX-License-Identifier: Apache-2.0
#include "host/decision.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace nccltune::host {
namespace {

// Compares bits, so that NaN equals itself and -0 differs from 0.
bool Same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

class Judgement {
 public:
  Judgement(const Answer& answer, Decision* decision) : in_(answer), out_(decision) {}

  void Run() {
    out_->channels_requested = in_.channels;
    JudgeChannels();
    if (in_.rules.selection == Selection::kPluginDirect) {
      JudgeNamed();
    } else {
      FindChanges();
      JudgeTable();
    }
    if (out_->outcome == DecisionResult::kChosen) CapChannels();
  }

 private:
  bool ReplacesChannels() const { return in_.rules.channels == ChannelRule::kReplaces; }

  void JudgeChannels() {
    if (in_.channels < 0) {
      out_->Warn("negative_channels",
                 "the plugin asks for " + std::to_string(in_.channels) + " channels: " +
                     (ReplacesChannels() ? "NCCL takes the number unchecked and divides by it"
                                         : "NCCL ignores it"));
    } else if (in_.channels > in_.rules.max_channels) {
      out_->Warn("too_many_channels", "the plugin asks for " + std::to_string(in_.channels) +
                                          " channels; this version of NCCL has at most " +
                                          std::to_string(in_.rules.max_channels));
    }
    if (in_.channels > 0 || (in_.channels < 0 && ReplacesChannels())) {
      out_->outcome = DecisionResult::kChosen;
      out_->choice.channels = in_.channels;
    }
  }

  // The communicator's channel count limits rings, trees and PAT only. NCCL uses separate
  // counts for the other algorithms, or does not check them (CollNet up to 2.30).
  void CapChannels() {
    if (!in_.channel_limit || !out_->choice.channels) return;
    const int algorithm = out_->selected.algorithm;
    if (algorithm != abi::kTree && algorithm != abi::kRing && algorithm != abi::kPat) return;
    if (*out_->choice.channels <= *in_.channel_limit) return;
    out_->Warn("channels_cut", "the plugin asks for " + std::to_string(*out_->choice.channels) +
                                   " channels; the communicator has " +
                                   std::to_string(*in_.channel_limit));
    out_->choice.channels = in_.channel_limit;
  }

  // For NCCL 2.21 with interface v2. NCCL then runs the combination that the plugin names.
  void JudgeNamed() {
    const Combination named = in_.named;
    const bool half = (named.algorithm == abi::kAlgorithmUndefined) !=
                      (named.protocol == abi::kProtocolUndefined);
    if (half) {
      out_->Warn(
          "half_a_choice",
          "the plugin named only an algorithm or only a protocol: NCCL 2.21 decides by itself");
    }
    if (half || named == Combination{}) {
      if (!in_.nominal) out_->selected = Pick(in_.rules, in_.offered, in_.offered);
      return;
    }
    if (!Exists(named)) {
      out_->Fail("invalid_choice", NamedInWords() +
                                       ", which do not exist: NCCL 2.21 looks them up "
                                       "in its tables without a check");
      return;
    }
    Choose(named);
    if (in_.offered.at(named) == abi::kIgnore) WarnIgnoredEntry(named);
  }

  bool Exists(Combination c) const {
    return c.algorithm >= 0 && c.algorithm < in_.offered.algorithms && c.protocol >= 0 &&
           c.protocol < abi::kNumProtocols;
  }

  std::string NamedInWords() const {
    return "the plugin names algorithm " + std::to_string(in_.named.algorithm) + " and protocol " +
           std::to_string(in_.named.protocol);
  }

  void FindChanges() {
    ForEachEntry(in_.offered, [&](Combination c) {
      const float before = in_.offered.at(c);
      const float after = in_.answered.at(c);
      if (Same(before, after)) return;
      out_->table_changed.push_back({c, before, after});
      WarnOddValue(c, before, after);
    });
    if (!out_->table_changed.empty()) out_->outcome = DecisionResult::kChosen;
  }

  bool Changed(Combination c) const { return !Same(in_.offered.at(c), in_.answered.at(c)); }

  void WarnOddValue(Combination c, float before, float after) {
    const std::string entry = CombinationName(c);
    if (std::isnan(after)) {
      out_->Warn("not_a_number",
                 "the plugin set the cost of " + entry + " to NaN: NCCL never picks it");
    } else if (before == abi::kIgnore && after >= 0) {
      const bool harmless = in_.rules.selection == Selection::kLeastOfOffered;
      out_->Warn("not_usable_written",
                 "the plugin set a cost for " + entry + ", which NCCL marked as not usable here: " +
                     (harmless ? "NCCL ignores it" : "if it is the least, NCCL runs it"));
    } else if (after < 0 && before >= 0 && in_.rules.selection == Selection::kLeastOfOffered) {
      out_->Warn("negative_cost", "the plugin set the cost of " + entry + " to " +
                                      std::to_string(after) +
                                      ": since NCCL 2.31 that makes it the best, not unusable");
    }
  }

  void WarnIgnoredEntry(Combination c) {
    out_->Warn("not_usable_selected", "the plugin selects " + CombinationName(c) +
                                          ", which NCCL marked as not usable here: NCCL runs it, "
                                          "which may crash or hang");
  }

  int Pickable() const {
    int count = 0;
    ForEachEntry(in_.offered, [&](Combination c) {
      const float cost = in_.answered.at(c);
      const bool usable = in_.rules.selection == Selection::kLeastOfOffered
                              ? in_.offered.at(c) != abi::kIgnore
                              : cost >= 0.0f;
      if (usable && cost < in_.rules.cost_limit) ++count;
    });
    return count;
  }

  void JudgeTable() {
    const Combination pick = Pick(in_.rules, in_.offered, in_.answered);
    if (!pick.known()) {
      JudgeNoEntry();
      return;
    }
    if (in_.offered.at(pick) == abi::kIgnore) WarnIgnoredEntry(pick);
    if (!in_.nominal) {
      out_->selected = pick;
      if (!out_->table_changed.empty()) out_->choice.combination = pick;
      return;
    }
    if (out_->table_changed.empty()) return;
    // NCCL's predictions are positive, so only a cost of zero or less is certain to beat them.
    const bool sure = Changed(pick) && in_.answered.at(pick) <= 0.0f;
    if (sure || Pickable() == 1) {
      Choose(pick);
      return;
    }
    out_->Warn("undetermined",
               Changed(pick)
                   ? "the plugin set a cost above zero; what NCCL picks depends on its own "
                     "predictions, which can be given as costs"
                   : "the plugin excluded entries or raised their costs; what NCCL picks of "
                     "the others depends on its own predictions, which can be given as costs");
  }

  void JudgeNoEntry() {
    if (in_.rules.last_resort) {
      out_->Warn("last_resort",
                 "no entry is left to pick: NCCL falls back to a combination that it "
                 "kept out of the table");
      return;
    }
    out_->Fail("no_usable_entry",
               "no entry is left to pick: NCCL fails the collective with an error");
  }

  void Choose(Combination c) {
    out_->outcome = DecisionResult::kChosen;
    out_->choice.combination = c;
    out_->selected = c;
  }

  const Answer& in_;
  Decision* out_;
};

}  // namespace

void Judge(const Answer& answer, Decision* decision) { Judgement(answer, decision).Run(); }

}  // namespace nccltune::host
