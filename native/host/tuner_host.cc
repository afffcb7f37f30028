// SPDX-License-Identifier: Apache-2.0
#include "host/tuner_host.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "host/nccl_stand_in.h"

namespace nccltune::host {
namespace {

// Any number works here: NCCL passes a hash that is the same on all ranks.
constexpr uint64_t kCommunicatorId = 0x6e63636c74756e65;

std::string ResultInWords(int result) {
  static constexpr const char* kNames[] = {
      "ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
      "ncclInvalidArgument", "ncclInvalidUsage",       "ncclRemoteError", "ncclInProgress"};
  std::string words = std::to_string(result);
  if (result >= 0 && result <= abi::kInProgress) {
    words += std::string(" (") + kNames[result] + ")";
  }
  return words;
}

template <typename Guard>
void WarnOfDamage(Guard* guard, const char* function, std::vector<Warning>* warnings) {
  if (const std::optional<std::string> damage = guard->TakeDamage()) {
    warnings->push_back({"wrote_outside", std::string("the plugin's ") + function + " " + *damage});
  }
}

}  // namespace

std::unique_ptr<TunerHost> TunerHost::Start(const HostOptions& options, InitReport* report,
                                            Failure* failure) {
  *report = InitReport();
  const NcclRules* rules = RulesFor(options.nccl, &report->rules_exact);
  if (rules == nullptr) {
    *failure = {"no_interface",
                "NCCL " + ToString(options.nccl) + " knows none of the interfaces v2 to v7"};
    return nullptr;
  }
  StandInForNccl(options.nccl);
  std::string error;
  SharedLibrary library = SharedLibrary::Open(options.tuner, &error);
  if (!library) {
    *failure = {"load", "cannot be opened: " + error};
    return nullptr;
  }
  report->exported = InterfacesOf(library);
  report->channel_rule = rules->channels;
  std::unique_ptr<TunerInterface> tuner;
  for (int version = rules->native_interface; version >= kOldestInterface; --version) {
    const void* symbol = FindTuner(library, version);
    if (symbol == nullptr) continue;
    tuner = WrapTuner(version, symbol);
    break;
  }
  if (tuner == nullptr) {
    *failure = {"no_interface", "exports none of the symbols that NCCL " + ToString(options.nccl) +
                                    " looks for (" + TunerSymbolName(rules->native_interface) +
                                    " down to " + TunerSymbolName(kOldestInterface) + ")"};
    return nullptr;
  }
  report->interface = tuner->version();
  report->plugin_name = tuner->name() == nullptr ? "" : tuner->name();
  report->has_chunk_size = tuner->has_chunk_size();
  const std::string missing = tuner->MissingMember();
  if (!missing.empty()) {
    *failure = {"no_interface", TunerSymbolName(tuner->version()) + "." + missing +
                                    " is null, which NCCL would call"};
    return nullptr;
  }
  std::unique_ptr<TunerHost> host(
      new TunerHost(options, *rules, std::move(library), std::move(tuner)));
  if (!host->Init(report, failure)) return nullptr;
  return host;
}

TunerHost::TunerHost(const HostOptions& options, const NcclRules& rules, SharedLibrary library,
                     std::unique_ptr<TunerInterface> tuner)
    : options_(options),
      rules_(rules),
      library_(std::move(library)),
      tuner_(std::move(tuner)),
      nvl_domains_("NVLink domain information",
                   {options.platform.nodes, options.platform.min_ranks_per_node,
                    options.platform.max_ranks_per_node}),
      constants_("model constants", tuner_->constants_size()) {}

TunerHost::~TunerHost() {
  Finish();
  tuner_.reset();  // before library_, because the plugin's struct is inside the library
}

bool TunerHost::Init(InitReport* report, Failure* failure) {
  // From 2.31, NCCL calls init before it sets the constants to its defaults, so init sees zeros.
  if (rules_.constants == ConstantsRule::kDefaultsKept && constants_.size() != 0) {
    const abi::TunerConstantsV5 defaults = DefaultConstants(options_.nccl);
    std::memcpy(constants_.data(), &defaults, sizeof defaults);
  }
  const std::vector<double> before = ConstantValues(constants_);
  InitCall call;
  call.communicator_id = kCommunicatorId;
  call.ranks = static_cast<size_t>(options_.platform.ranks);
  call.nodes = static_cast<size_t>(options_.platform.nodes);
  call.log = plugin_log::Function();
  call.nvl_domains = nvl_domains_.data();
  call.constants = constants_.data();
  plugin_log::Take();  // drop lines of an earlier TunerHost in this process
  const int result = tuner_->Init(call, &context_);
  report->log = plugin_log::Take();
  WarnOfDamage(&nvl_domains_, "init", &report->warnings);
  WarnOfDamage(&constants_, "init", &report->warnings);
  report->constants_changed = ConstantChanges(before, ConstantValues(constants_));
  if (!report->constants_changed.empty()) {
    report->warnings.push_back(
        {"constants_changed",
         std::to_string(report->constants_changed.size()) + " model constants changed: " +
             (rules_.constants == ConstantsRule::kDefaultsKept
                  ? "this moves NCCL's decisions also where the plugin makes none"
                  : "lost, since NCCL 2.31 sets its defaults after init")});
  }
  if (result != abi::kSuccess) {
    *failure = {"init", "init returned " + ResultInWords(result) +
                            ": NCCL fails to create the communicator"};
    return false;
  }
  live_ = true;
  return true;
}

std::string TunerHost::Finish() {
  if (!std::exchange(live_, false)) return "";
  const int result = tuner_->Finalize(context_);
  if (result == abi::kSuccess) return "";
  return "finalize returned " + ResultInWords(result) + ": NCCL fails to destroy the communicator";
}

CostTable TunerHost::OfferedTable(const DecisionRequest& request) const {
  if (!request.costs) return NominalTable(rules_, request.collective, options_.platform);
  CostTable table(rules_.algorithms);
  for (const auto& [entry, cost] : *request.costs) {
    if (entry.algorithm < table.algorithms) table.at(entry) = cost;
  }
  return table;
}

Decision TunerHost::Decide(const DecisionRequest& request) {
  Decision decision;
  decision.request = request;
  if (!live_) {
    decision.Fail("finished", "the plugin has been finalized");
    return decision;
  }
  const CostTable offered = OfferedTable(request);
  CostTable answered = offered;
  Combination named;
  if (AskCollInfo(offered, &answered, &named, &decision)) {
    Judge({.rules = rules_,
           .offered = offered,
           .answered = answered,
           .nominal = !request.costs,
           .named = named,
           .channels = decision.channels_requested,
           .channel_limit = options_.channels},
          &decision);
    AskChunkSize(&decision);
  }
  decision.log = plugin_log::Take();
  return decision;
}

bool TunerHost::AskCollInfo(const CostTable& offered, CostTable* answered, Combination* named,
                            Decision* decision) {
  const DecisionRequest& request = decision->request;
  const size_t table_bytes =
      static_cast<size_t>(offered.algorithms) * abi::kNumProtocols * sizeof(float);
  GuardedBytes table("cost table", table_bytes);
  std::memcpy(table.data(), offered.cost.data(), table_bytes);
  Guarded<int> channels("channel count", 0);
  Guarded<int> algorithm("algorithm", abi::kAlgorithmUndefined);
  Guarded<int> protocol("protocol", abi::kProtocolUndefined);
  const auto usable = [&offered](abi::Algorithm a) {
    return offered.at({a, abi::kSimple}) != abi::kIgnore;
  };
  CollInfoCall call;
  call.collective = request.collective;
  call.bytes = request.bytes;
  call.pipe_ops = request.pipe_ops;
  call.registered = request.registered;
  call.table = static_cast<float**>(table.data());
  call.algorithms = offered.algorithms;
  call.channels = channels.data();
  call.collnet_support = usable(abi::kCollnetChain) ? 1 : 0;
  call.nvls_support = usable(abi::kNvls) || usable(abi::kNvlsTree) ? 1 : 0;
  call.algorithm = algorithm.data();
  call.protocol = protocol.data();
  const int result = tuner_->GetCollInfo(context_, call);
  WarnOfDamage(&table, "getCollInfo", &decision->warnings);
  WarnOfDamage(&channels, "getCollInfo", &decision->warnings);
  WarnOfDamage(&algorithm, "getCollInfo", &decision->warnings);
  WarnOfDamage(&protocol, "getCollInfo", &decision->warnings);
  decision->channels_requested = channels.get();
  if (result != abi::kSuccess) {
    decision->Fail("plugin_error", "getCollInfo returned " + ResultInWords(result) +
                                       ": NCCL fails the collective with it");
    return false;
  }
  std::memcpy(answered->cost.data(), table.data(), table_bytes);
  *named = {algorithm.get(), protocol.get()};
  if (tuner_->version() == 2) ApplyNamed(*named, answered, decision);
  return true;
}

// NCCL 2.22 and later write a v2 plugin's choice into the cost table if that entry exists and is
// usable.
void TunerHost::ApplyNamed(Combination named, CostTable* answered, Decision* decision) const {
  if (rules_.selection == Selection::kPluginDirect || named == Combination{}) return;
  const bool exists = named.algorithm >= 0 && named.algorithm < answered->algorithms &&
                      named.protocol >= 0 && named.protocol < abi::kNumProtocols;
  if (!exists) {
    decision->Warn("choice_dropped", "the plugin names algorithm " +
                                         std::to_string(named.algorithm) + " and protocol " +
                                         std::to_string(named.protocol) +
                                         ", not both of which exist: NCCL decides by itself");
  } else if (answered->at(named) == abi::kIgnore) {
    decision->Warn("choice_dropped", "the plugin names " + CombinationName(named) +
                                         ", which cannot run here: NCCL decides by itself");
  } else {
    answered->at(named) = 0.0f;
  }
}

void TunerHost::AskChunkSize(Decision* decision) {
  const Combination selected = decision->selected;
  if (!tuner_->has_chunk_size() || !selected.known()) return;
  const DecisionRequest& request = decision->request;
  const ChunkLimits limits = LimitsOfChunk(request.collective, selected);
  const size_t own = request.chunk_bytes == 0 ? limits.largest : request.chunk_bytes;
  const int channels = decision->choice.channels.value_or(options_.channels.value_or(1));
  const bool collnet = selected.algorithm == abi::kCollnetDirect ||
                       selected.algorithm == abi::kCollnetChain ||
                       (selected.algorithm == abi::kNvls && options_.platform.nodes > 1);
  // Without CollNet, NCCL asks separately for each group of channels, and passes the bytes of one
  // channel.
  const size_t parts = collnet || channels < 1 ? 1 : static_cast<size_t>(channels);
  Guarded<size_t> chunk("chunk size", own);
  ChunkCall call;
  call.collective = request.collective;
  call.bytes = (request.bytes + parts - 1) / parts;
  call.combination = selected;
  call.channels = collnet ? channels : 1;
  call.chunk_bytes = chunk.data();
  const int result = tuner_->GetChunkSize(context_, call);
  WarnOfDamage(&chunk, "getChunkSize", &decision->warnings);
  if (result != abi::kSuccess) {
    decision->Fail("plugin_error", "getChunkSize returned " + ResultInWords(result) +
                                       ": NCCL fails the collective with it");
    return;
  }
  const size_t asked = chunk.get();
  if (asked == own) return;
  const size_t final_size = FinalChunk(asked, limits);
  if (asked > limits.largest) {
    decision->Warn("chunk_cut", "the plugin asks for a chunk of " + std::to_string(asked) +
                                    " bytes; the buffer holds " + std::to_string(limits.largest));
  }
  if (final_size == 0) {
    decision->Warn("chunk_below_grain", "the plugin asks for a chunk of " + std::to_string(asked) +
                                            " bytes, less than one grain of " +
                                            std::to_string(limits.grain) +
                                            ": NCCL rounds it down to 0");
  }
  decision->outcome = DecisionResult::kChosen;
  decision->choice.chunk_bytes = final_size;
}

}  // namespace nccltune::host
