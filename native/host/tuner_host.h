// SPDX-License-Identifier: Apache-2.0
// Calls one tuner plugin in the way NCCL calls it for one communicator.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/cost_table.h"
#include "host/decision.h"
#include "host/guarded.h"
#include "host/model_constants.h"
#include "host/nccl_rules.h"
#include "host/plugin_log.h"
#include "host/tuner_interface.h"

namespace nccltune::host {

struct HostOptions {
  std::string tuner;            // a path, or a name for the loader to look up
  NcclVersion nccl;             // 2.21 or later
  Platform platform;            // at least 2 ranks, because NCCL asks no tuner for one rank
  std::optional<int> channels;  // number of channels of the communicator, if known
};

// The results of opening the plugin and calling its init.
struct InitReport {
  std::vector<int> exported;  // exported interface versions, newest first
  int interface = 0;          // the interface version that this NCCL version uses
  std::string plugin_name;
  // False: the NCCL version is newer than any known, and the newest rules are used.
  bool rules_exact = true;
  bool has_chunk_size = false;
  ChannelRule channel_rule = ChannelRule::kReplaces;
  std::vector<ConstantChange> constants_changed;
  std::vector<Warning> warnings;
  LogLines log;
};

class TunerHost {
 public:
  // Opens the plugin and calls its init. Returns null with *failure if NCCL would continue without
  // the plugin ("load", "no_interface") or would fail to create the communicator ("init"). *report
  // then holds the results up to the failure.
  static std::unique_ptr<TunerHost> Start(const HostOptions& options, InitReport* report,
                                          Failure* failure);
  // Calls the plugin's finalize, unless Finish has called it, and closes the plugin.
  ~TunerHost();
  TunerHost(const TunerHost&) = delete;
  TunerHost& operator=(const TunerHost&) = delete;

  const NcclRules& rules() const { return rules_; }

  // Asks the plugin about one collective call, as NCCL does.
  Decision Decide(const DecisionRequest& request);

  // Calls the plugin's finalize. Returns the error text; empty if there was no error.
  std::string Finish();

 private:
  TunerHost(const HostOptions& options, const NcclRules& rules, SharedLibrary library,
            std::unique_ptr<TunerInterface> tuner);

  bool Init(InitReport* report, Failure* failure);
  CostTable OfferedTable(const DecisionRequest& request) const;
  bool AskCollInfo(const CostTable& offered, CostTable* answered, Combination* named,
                   Decision* decision);
  void ApplyNamed(Combination named, CostTable* answered, Decision* decision) const;
  void AskChunkSize(Decision* decision);

  const HostOptions options_;
  const NcclRules& rules_;
  SharedLibrary library_;
  std::unique_ptr<TunerInterface> tuner_;
  void* context_ = nullptr;
  bool live_ = false;  // init succeeded and finalize has not been called
  // The two members below live as long as the communicator, because a plugin may keep pointers to
  // them.
  Guarded<abi::NvlDomainInfoV5> nvl_domains_;
  GuardedBytes constants_;
};

}  // namespace nccltune::host
