// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/call_probe.h"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "abi/profiler_v5.h"
#include "common/text.h"
#include "common/vocabulary.h"

namespace nccltune::bench {
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

abi::Result StartEvent(void* context, void** handle, abi::ProfilerEventV5* event) {
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
extern __attribute__((visibility("default"))) const nccltune::abi::ProfilerV5 ncclProfiler_v5;

const nccltune::abi::ProfilerV5 ncclProfiler_v5 = {
    "nccltune-bench",
    nccltune::bench::Init,
    nccltune::bench::StartEvent,
    nccltune::bench::StopEvent,
    nccltune::bench::RecordEventState,
    nccltune::bench::Finalize,
};
}
