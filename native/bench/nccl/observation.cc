// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/observation.h"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "abi/profiler.h"
#include "common/text.h"
#include "common/vocabulary.h"
#include "host/cost_table.h"

namespace nccltune::bench {
namespace {

host::CostTable CostsOf(const nccltune_tuner_table& table) {
  host::CostTable costs(std::min<int>(table.algorithms, abi::kNumAlgorithms));
  host::ForEachEntry(costs, [&](host::Combination entry) {
    if (entry.protocol < table.protocols) {
      costs.at(entry) = table.cost_us[entry.algorithm][entry.protocol];
    }
  });
  return costs;
}

host::Combination PickOf(const nccltune_tuner_table& table, const NcclVersion& version) {
  bool exact = false;
  const host::NcclRules* const rules = host::RulesFor(version, &exact);
  if (rules == nullptr) return {};
  const host::CostTable costs = CostsOf(table);
  return host::Pick(*rules, costs, costs);
}

host::Combination CombinationOf(const Observation& observation, const NcclVersion& version) {
  if (observation.probed && observation.probed->combination.known()) {
    return observation.probed->combination;
  }
  if (observation.decision) {
    const host::Combination decided = {observation.decision->algorithm,
                                       observation.decision->protocol};
    if (decided.known()) return decided;
  }
  return observation.table ? PickOf(*observation.table, version) : host::Combination{};
}

bool IsApplied(const Step& step, const Observation& observation) {
  if (step.choice.kind != Choice::Kind::kForced) return true;
  const host::Combination wanted = step.choice.combination;
  const bool probed = observation.probed && observation.probed->combination.known();
  if (probed && wanted.known() && observation.probed->combination != wanted) return false;
  if (observation.decision) {
    return observation.decision->source == NCCLTUNE_TUNER_BY_FORCE &&
           observation.decision->outcome == NCCLTUNE_TUNER_APPLIED;
  }
  // NCCL has not asked the plugin about this call. So judge by the profiler's record. Without such
  // a record, the choice counts as not applied.
  return probed && wanted.known() &&
         (step.choice.channels <= 0 || observation.probed->channels <= step.choice.channels);
}

}  // namespace

Observer::ObservationScope::ObservationScope(Observer& observer, int rank) : observer_(observer) {
  CallProbe::Take(rank);
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (observer_.observers_++ == 0) observer_.control_.Record(true);
}

Observer::ObservationScope::~ObservationScope() {
  const std::lock_guard<std::mutex> lock(observer_.mutex_);
  if (--observer_.observers_ == 0) observer_.control_.Record(false);
}

Observation Observer::Collect(Collective collective, size_t bytes, int rank, int device) const {
  Observation observation;
  observation.probed = CallProbe::Take(rank);
  // If the newest decision is about another size, NCCL did not ask the plugin about this call. So
  // drop the decision.
  observation.decision = control_.LastDecision(collective, device);
  if (observation.decision && observation.decision->bytes != bytes) observation.decision.reset();
  observation.table = control_.LastTable(collective, bytes);
  return observation;
}

AppliedChoice Judge(const Step& step, const Observation& observation, const NcclVersion& version) {
  ExecutedChoice ran;
  ran.combination = CombinationOf(observation, version);
  if (observation.probed && observation.probed->channels > 0) {
    ran.channels = observation.probed->channels;
  }
  if (observation.decision && observation.decision->chunk_bytes > 0) {
    ran.chunk_bytes = static_cast<size_t>(observation.decision->chunk_bytes);
  }
  AppliedChoice verdict;
  if (!(ran == ExecutedChoice{})) verdict.ran = ran;
  verdict.applied = IsApplied(step, observation);
  return verdict;
}

std::optional<TunerInputs> SeenBy(const Observation& observation) {
  if (!observation.decision) return std::nullopt;
  TunerInputs seen;
  seen.pipe_ops = observation.decision->pipe_ops;
  if (observation.decision->registered >= 0) seen.registered = observation.decision->registered > 0;
  return seen;
}

TableRow RowOf(const nccltune_tuner_table& table, const NcclVersion& version) {
  TableRow row;
  const host::CostTable costs = CostsOf(table);
  host::ForEachEntry(costs, [&](host::Combination entry) {
    const float cost = costs.at(entry);
    if (cost >= 0) row.costs.emplace_back(entry, static_cast<double>(cost));
  });
  row.predicted = PickOf(table, version);
  return row;
}

namespace {

constexpr const char* kVariable = "NCCL_PROFILER_PLUGIN";
constexpr int kEvents =
    static_cast<int>(abi::kProfileCollective) | static_cast<int>(abi::kProfilePointToPoint);

struct Communicator {
  int rank = 0;
  std::optional<ProbedCall> last;
};

// The mutex guards all members. NCCL reads *mask without the mutex, so *mask is written atomically.
struct State {
  std::mutex mutex;
  int* mask = nullptr;
  int listeners = 0;
  std::map<void*, Communicator> communicators;  // key: the context that Init returned
  uintptr_t contexts = 0;
};

// Never destroyed, because NCCL's threads may outlive main.
State& Shared() {
  static State* const state = new State;
  return *state;
}

void SetMask(const State& state) {
  if (state.mask == nullptr) return;
  __atomic_store_n(state.mask, state.listeners > 0 ? kEvents : 0, __ATOMIC_RELAXED);
}

int NumberOfForeign(Words words, const char* word) {
  std::string lower(word == nullptr ? "" : word);
  std::transform(lower.begin(), lower.end(), lower.begin(), LowerCase);
  return NumberOf(words, lower).value_or(-1);
}

ProbedCall Probed(const abi::ProfilerCollectiveV5& call) {
  host::Combination combination = {NumberOfForeign(AlgorithmNames(), call.algorithm),
                                   NumberOfForeign(ProtocolNames(), call.protocol)};
  if (!combination.known()) combination = {};
  return {combination, call.channels};
}

abi::Result Init(void** context, uint64_t /*communicator_id*/, int* mask,
                 const char* /*communicator_name*/, int /*nodes*/, int /*ranks*/, int rank,
                 abi::LogFunction /*log*/) {
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.mask = mask;
  *context = reinterpret_cast<void*>(++state.contexts);
  state.communicators[*context] = {rank, std::nullopt};
  SetMask(state);
  return abi::kSuccess;
}

abi::Result StartEvent(void* context, void** handle, abi::ProfilerEvent<5>* event) {
  *handle = nullptr;
  if (event->type != abi::kProfileCollective && event->type != abi::kProfilePointToPoint) {
    return abi::kSuccess;
  }
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto found = state.communicators.find(context);
  if (found == state.communicators.end()) return abi::kSuccess;
  std::optional<ProbedCall>& last = found->second.last;
  if (event->type == abi::kProfileCollective) {
    last = Probed(event->collective);
  } else {
    if (!last || last->combination.known()) last = ProbedCall{};
    last->channels = std::max<int>(last->channels, event->point_to_point.channels);
  }
  return abi::kSuccess;
}

abi::Result StopEvent(void* /*handle*/) { return abi::kSuccess; }
abi::Result RecordEventState(void* /*handle*/, int /*state*/, void* /*arguments*/) {
  return abi::kSuccess;
}

abi::Result Finalize(void* context) {
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.communicators.erase(context);
  return abi::kSuccess;
}

}  // namespace

void CallProbe::Announce() {
  const char* const set = std::getenv(kVariable);
  if (set != nullptr && strcasecmp(set, "none") == 0) return;
  setenv(kVariable, "STATIC_PLUGIN", 1);
}

CallProbe::Listening::Listening() {
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ++state.listeners;
  SetMask(state);
}

CallProbe::Listening::~Listening() {
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  --state.listeners;
  SetMask(state);
}

std::optional<ProbedCall> CallProbe::Take(int rank) {
  State& state = Shared();
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (auto& [context, communicator] : state.communicators) {
    if (communicator.rank == rank) return std::exchange(communicator.last, std::nullopt);
  }
  return std::nullopt;
}

}  // namespace nccltune::bench

// NCCL looks up the symbol ncclProfiler_v5 in the program. NCCL may call the functions of this
// table from any thread. The functions throw only if memory is exhausted, which ends the program.
extern "C" {
extern __attribute__((visibility("default"))) const nccltune::abi::Profiler<5> ncclProfiler_v5;

const nccltune::abi::Profiler<5> ncclProfiler_v5 = {
    "nccltune-bench",
    nccltune::bench::Init,
    nccltune::bench::StartEvent,
    nccltune::bench::StopEvent,
    nccltune::bench::RecordEventState,
    nccltune::bench::Finalize,
};
}
