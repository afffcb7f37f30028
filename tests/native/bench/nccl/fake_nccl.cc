// SPDX-License-Identifier: Apache-2.0
// What the fake libnccl.so.2 adds to the stand-in for NCCL (sendrecv/stand_in): it calls the tuner
// plugin and the profiler as NCCL does, and simulates faults.
#include <strings.h>

#include "abi/profiler.h"
#include "common/nccl_version.h"
#include "host/nccl_rules.h"
#include "host/nccl_stand_in.h"
#include "host/tuner_host.h"
#include "sendrecv/stand_in/nccl_comm.h"
#include "standard.h"

namespace nccltune::fake {
namespace {

using soft::Comm;
using soft::ncclResult_t;
using soft::Task;

// The mask of profiler events, one for the process, as in NCCL.
int profiler_mask = 0;

// The channels of every fake communicator.
constexpr size_t kChannels = 24;

// The plugin host has one log for the process, so the ranks of a process must ask the plugin one
// after another.
std::mutex tuner_mutex;

std::string Setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

NcclVersion VersionFromEnvironment() {  // FAKE_NCCL_VERSION=22809
  const std::string text = Setting("FAKE_NCCL_VERSION");
  return NcclVersionFromCode(text.empty() ? 22809 : std::atoi(text.c_str())).value();
}

// The faults to simulate, read from the environment when the communicator is created. A size of 0
// means every size. SOFT_NCCL_INIT_FAILS is a setting of the stand-in.
struct Faults {
  struct At {
    int rank = -1;
    size_t bytes = 0;
  };
  // RANK:BYTES
  static std::optional<At> Place(const char* name) {
    At at;
    if (std::sscanf(Setting(name).c_str(), "%d:%zu", &at.rank, &at.bytes) != 2) return std::nullopt;
    return at;
  }

  const std::optional<At> hang = Place("FAKE_NCCL_HANG");    // the call never ends
  const std::optional<At> wrong = Place("FAKE_NCCL_WRONG");  // one element of the result is wrong
  const std::optional<At> fail = Place("FAKE_NCCL_FAIL");    // the function returns fail_code
  // Hangs and reports an asynchronous error.
  const std::optional<At> asynchronous = Place("FAKE_NCCL_ASYNC");
  const int fail_code = fail ? std::max(1, std::atoi(Setting("FAKE_NCCL_FAIL_CODE").c_str())) : 0;
  // Does not load the plugin.
  const bool ignores_tuner = !Setting("FAKE_NCCL_NO_TUNER").empty();
  // Loads the plugin but does not call it.
  const bool forgets_tuner = !Setting("FAKE_NCCL_FORGETS_TUNER").empty();
  // A setting of NCCL.
  const bool no_registration = Setting("NCCL_LOCAL_REGISTER") == "0";
  // Duration of each collective.
  const long delay_us = std::atol(Setting("FAKE_NCCL_DELAY_US").c_str());
};

// Returns the number of nodes, from FAKE_NCCL_NODES, at most one for each rank.
int NodesOf(int ranks) {
  const std::string nodes = Setting("FAKE_NCCL_NODES");
  return nodes.empty() ? 1 : std::min(std::atoi(nodes.c_str()), ranks);
}

// ncclFunc_t.
int FunctionOf(const Task& task) {
  const std::pair<std::string_view, int> functions[] = {{"Broadcast", abi::kBroadcast},
                                                        {"Reduce", abi::kReduce},
                                                        {"AllGather", abi::kAllGather},
                                                        {"ReduceScatter", abi::kReduceScatter}};
  for (const auto& [name, function] : functions) {
    if (task.name == name) return function;
  }
  return abi::kAllReduce;
}

// Predictions whose order depends on the size: latency and bandwidth of each combination.
std::vector<std::pair<host::Combination, float>> Costs(int function, size_t bytes, int algorithms) {
  const auto cost = [bytes](double latency_us, double gb_per_s) {
    return static_cast<float>(latency_us + static_cast<double>(bytes) / (1000 * gb_per_s));
  };
  std::vector<std::pair<host::Combination, float>> costs = {
      {{abi::kRing, abi::kLl}, cost(8, 10)},
      {{abi::kRing, abi::kLl128}, cost(15, 40)},
      {{abi::kRing, abi::kSimple}, cost(30, 80)}};
  if (function == abi::kAllReduce) {
    costs.push_back({{abi::kTree, abi::kLl}, cost(6, 8)});
    costs.push_back({{abi::kTree, abi::kLl128}, cost(14, 30)});
    costs.push_back({{abi::kTree, abi::kSimple}, cost(20, 70)});
  }
  if (algorithms > abi::kPat && function == abi::kAllGather) {
    costs.push_back({{abi::kPat, abi::kSimple}, cost(25, 60)});
  }
  return costs;
}

std::string UpperCase(std::string_view word) {
  std::string upper(word);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

class FakeNccl : public soft::CommObserver {
 public:
  explicit FakeNccl(Comm& comm) : comm_(comm) {
    const int nodes = NodesOf(comm.ranks);
    StartTuner(nodes);
    if (version_ >= NcclVersion{2, 28, 0} &&
        strcasecmp(Setting("NCCL_PROFILER_PLUGIN").c_str(), "STATIC_PLUGIN") == 0) {
      void* const program = dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
      profiler_ = static_cast<const abi::Profiler<5>*>(dlsym(program, "ncclProfiler_v5"));
      dlclose(program);
    }
    if (profiler_ == nullptr) return;
    profiler_->init(&profiler_context_, 1, &profiler_mask, nullptr, nodes, comm.ranks, comm.rank,
                    nullptr);
  }

  // Asks the plugin once about all calls of a group, as NCCL does, and reports to the profiler.
  ncclResult_t Launch(const std::vector<Task>& tasks, bool captured) override {
    const Task& first = tasks.front();
    const bool collects = first.is_collective();
    if (Hits(faults_.fail, collects ? soft::TunedBytes(first) : soft::SentBytes(tasks))) {
      return soft::Fail(faults_.fail_code, "a made-up failure");
    }
    if (collects) Decide(first, tasks.size(), captured);
    for (size_t i = 0; !collects && i < tasks.size(); ++i) {
      abi::ProfilerEvent<5> event{};
      event.type = abi::kProfilePointToPoint;
      event.point_to_point.channels = 2;
      Report(&event);
    }
    return soft::kNcclSuccess;
  }

  void Begin(size_t bytes) override {
    const bool fails = Hits(faults_.asynchronous, bytes);
    if (fails) comm_.error = soft::kNcclRemoteError;
    if (fails || Hits(faults_.hang, bytes)) {
      while (!comm_.aborted) usleep(100);
    }
    if (faults_.delay_us > 0) usleep(static_cast<useconds_t>(faults_.delay_us));
  }

  void End(size_t bytes, soft::CUdeviceptr last) override {
    if (last == 0 || !Hits(faults_.wrong, bytes)) return;
    unsigned char value = 0;
    soft::softCudaRead(comm_.gpu, last, &value, 1);
    value ^= 1U;
    soft::softCudaWrite(comm_.gpu, last, &value, 1);
  }

  void Close() override {
    if (profiler_ != nullptr) profiler_->finalize(profiler_context_);
    profiler_ = nullptr;
    const std::lock_guard<std::mutex> lock(tuner_mutex);
    tuner_.reset();
  }

 private:
  bool Hits(const std::optional<Faults::At>& fault, size_t bytes) const {
    return fault && fault->rank == comm_.rank && (fault->bytes == 0 || fault->bytes == bytes);
  }

  void StartTuner(int nodes) {
    const std::string plugin = Setting("NCCL_TUNER_PLUGIN");
    if (plugin.empty() || faults_.ignores_tuner) return;
    host::InitReport report;
    host::Failure failure;
    const std::lock_guard<std::mutex> lock(tuner_mutex);
    tuner_ = host::TunerHost::Start({.tuner = plugin,
                                     .nccl = version_,
                                     .platform = {.nodes = nodes,
                                                  .ranks = comm_.ranks,
                                                  .min_ranks_per_node = comm_.ranks / nodes,
                                                  .max_ranks_per_node = comm_.ranks / nodes},
                                     .channels = std::nullopt},
                                    &report, &failure);
  }

  // As NCCL, passes the size of all calls of a group, looks up the registration at the first call's
  // buffers with that size, and counts the calls for each channel of the communicator as pipe ops.
  void Decide(const Task& call, size_t calls, bool captured) {
    if (tuner_ == nullptr || faults_.forgets_tuner) return;
    host::DecisionRequest request;
    request.collective = static_cast<abi::TunedCollective>(FunctionOf(call));
    request.bytes = soft::TunedBytes(call) * calls;
    request.pipe_ops = static_cast<int>((calls + kChannels - 1) / kChannels);
    request.registered =
        captured || (!faults_.no_registration && IsRegistered(call.from, calls * call.bytes) &&
                     IsRegistered(call.to, calls * call.result_bytes));
    request.costs = Costs(FunctionOf(call), request.bytes, tuner_->rules().algorithms);
    host::Decision decision;
    {
      const std::lock_guard<std::mutex> lock(tuner_mutex);
      decision = tuner_->Decide(request);
    }
    if (captured) return;
    // A channel count that fits the size; the plugin's count is an upper bound.
    const int worth =
        static_cast<int>(std::clamp<size_t>(soft::TunedBytes(call) >> 15U, 1, kChannels));
    const std::string algorithm = UpperCase(host::AlgorithmName(decision.selected.algorithm));
    const std::string protocol = UpperCase(host::ProtocolName(decision.selected.protocol));
    abi::ProfilerEvent<5> event{};
    event.type = abi::kProfileCollective;
    event.collective.function = call.name;
    event.collective.channels =
        static_cast<uint8_t>(std::min(worth, decision.choice.channels.value_or(worth)));
    event.collective.algorithm = algorithm.c_str();
    event.collective.protocol = protocol.c_str();
    Report(&event);
  }

  void Report(abi::ProfilerEvent<5>* event) {
    const auto mask = static_cast<uint64_t>(__atomic_load_n(&profiler_mask, __ATOMIC_RELAXED));
    if (profiler_ == nullptr || (mask & event->type) == 0) return;
    event->rank = comm_.rank;
    void* handle = nullptr;
    profiler_->start_event(profiler_context_, &handle, event);
  }

  bool IsRegistered(soft::CUdeviceptr start, size_t bytes) const {
    return std::ranges::any_of(comm_.registered, [start, bytes](const auto& range) {
      const auto first = reinterpret_cast<soft::CUdeviceptr>(range.first);
      return start >= first && start + bytes <= first + range.second;
    });
  }

  const Faults faults_;
  const NcclVersion version_ = VersionFromEnvironment();
  Comm& comm_;
  std::unique_ptr<host::TunerHost> tuner_;
  const abi::Profiler<5>* profiler_ = nullptr;
  void* profiler_context_ = nullptr;
};

}  // namespace

// ncclGetVersion is the host's stand-in, exported by this library too. It reports
// FAKE_NCCL_VERSION, which is read when the library is opened and by this function.
extern "C" __attribute__((constructor, visibility("default"))) void fake_nccl_read_version();
void fake_nccl_read_version() {
  host::StandInForNccl(VersionFromEnvironment());
  soft::CommObserver::make = [](Comm& comm) -> std::shared_ptr<soft::CommObserver> {
    return std::make_shared<FakeNccl>(comm);
  };
}

}  // namespace nccltune::fake
