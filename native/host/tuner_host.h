// SPDX-License-Identifier: Apache-2.0
// Plays NCCL's side of the tuner interface for one plugin and one communicator.
#ifndef NCCLTUNE_HOST_TUNER_HOST_H_
#define NCCLTUNE_HOST_TUNER_HOST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/constants_diff.h"
#include "host/cost_table.h"
#include "host/decision.h"
#include "host/guarded.h"
#include "host/nccl_rules.h"
#include "host/plugin_library.h"
#include "host/plugin_log.h"
#include "host/tuner_interface.h"

namespace nccltune::host {

struct HostOptions {
  std::string tuner;            // path, or a name for the loader to search
  NcclVersion nccl;             // 2.21 or later
  Platform platform;            // 2 ranks or more: with one, NCCL asks no tuner
  std::optional<int> channels;  // of the communicator, where known
};

// What loading and init showed.
struct InitReport {
  std::vector<int> exported;  // interface versions, newest first
  int interface = 0;          // the one that this NCCL version takes
  std::string plugin_name;
  bool rules_exact = true;  // false: a version newer than any known, played as the newest
  bool has_chunk_size = false;
  ChannelRule channel_rule = ChannelRule::kReplaces;
  std::vector<ConstantChange> constants_changed;
  std::vector<Warning> warnings;
  LogLines log;
};

class TunerHost {
 public:
  // Opens the plugin and calls its init. Null and *failure if NCCL would go on without the plugin
  // ("load", "no_interface") or could not create the communicator ("init"); *report holds what was
  // learnt until then.
  static std::unique_ptr<TunerHost> Start(const HostOptions& options, InitReport* report,
                                          Failure* failure);
  // Calls the plugin's finalize, unless Finish did, and closes it.
  ~TunerHost();
  TunerHost(const TunerHost&) = delete;
  TunerHost& operator=(const TunerHost&) = delete;

  const NcclRules& rules() const { return rules_; }

  // Asks once, as NCCL does for one collective.
  Decision Decide(const Request& request);

  // Calls finalize. Says what went wrong, empty if nothing.
  std::string Finish();

 private:
  TunerHost(const HostOptions& options, const NcclRules& rules,
            std::unique_ptr<PluginLibrary> library, std::unique_ptr<TunerInterface> tuner);

  bool Init(InitReport* report, Failure* failure);
  CostTable OfferedTable(const Request& request) const;
  bool AskCollInfo(const CostTable& offered, CostTable* answered, Combination* named,
                   Decision* decision);
  void ApplyNamed(Combination named, CostTable* answered, Decision* decision) const;
  void AskChunkSize(Decision* decision);

  const HostOptions options_;
  const NcclRules& rules_;
  std::unique_ptr<PluginLibrary> library_;
  std::unique_ptr<TunerInterface> tuner_;
  void* context_ = nullptr;
  bool live_ = false;  // init went well and finalize was not called
  // As long as the communicator: a plugin may keep the pointers.
  Guarded<abi::NvlDomainInfoV5> nvl_domains_;
  GuardedBytes constants_;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_TUNER_HOST_H_
