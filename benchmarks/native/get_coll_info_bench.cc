// SPDX-License-Identifier: Apache-2.0
//
// Times one getCollInfo call through the exported v5 struct, against a plain scan over the same
// rules with the documented first-match meaning. Both get the same calls and write to the same cost
// table. Before the timing, their answers are compared.
//
//   build/release/benchmarks/native/get_coll_info_bench --benchmark_repetitions=20
//     --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "abi/tuner.h"
#include "tuner/config.h"
#include "tuner/first_match.h"

extern "C" const nccltune::abi::TunerV5 ncclTunerPlugin_v5;

namespace nccltune::tuner {
namespace {

constexpr Scale kScale = {4, 32};
constexpr size_t kCalls = 4096;  // more than a branch predictor can remember
using Table = std::array<float, size_t{abi::kNumAlgorithms} * abi::kNumProtocols>;

enum Kind : int64_t { kHit = 0, kMiss = 1 };

// Adjacent ranges from 1 KiB up, as from a sweep with many sizes. No rule matches above them.
constexpr uint64_t kFirstByte = 1024;
constexpr uint64_t kBytesPerRule = 4096;

std::string MakeConfig(size_t rules) {
  constexpr const char* kChoices[] = {"tree,ll", "tree,simple", "ring,ll128", "ring,simple"};
  std::string config;
  for (size_t i = 0; i < rules; ++i) {
    const uint64_t low = kFirstByte + i * kBytesPerRule;
    config += "allreduce," + std::to_string(low) + "," + std::to_string(low + kBytesPerRule - 1) +
              "," + kChoices[i % 4] + ",-1,4,32\n";
  }
  return config;
}

std::vector<uint64_t> MakeSizes(size_t rules, Kind kind) {
  const uint64_t end = kFirstByte + rules * kBytesPerRule;
  std::mt19937_64 random(rules * 2 + static_cast<uint64_t>(kind));
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < kCalls; ++i) {
    const uint64_t r = random();
    sizes.push_back(kind == kHit ? kFirstByte + r % (end - kFirstByte) : end + r % (end << 10U));
  }
  return sizes;
}

// A plugin context, initialized with that configuration.
class Plugin {
 public:
  explicit Plugin(const std::string& config) {
    std::string path = "/tmp/nccltune-bench-XXXXXX";
    const int file = mkstemp(path.data());
    const ssize_t written = write(file, config.data(), config.size());
    close(file);
    setenv("NCCLTUNE_CONFIG", path.c_str(), 1);
    abi::NvlDomainInfoV5 domains = {4, 8, 8};
    abi::TunerConstantsV5 constants = {};
    ok_ = file >= 0 && written == static_cast<ssize_t>(config.size()) &&
          ncclTunerPlugin_v5.init(&context_, 1, kScale.ranks, kScale.nodes, nullptr, &domains,
                                  &constants) == abi::kSuccess;
    unlink(path.c_str());
  }
  ~Plugin() { ncclTunerPlugin_v5.finalize(context_); }
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  bool ok() const { return ok_; }

  void Ask(uint64_t bytes, Table* table, int* channels) const {
    ncclTunerPlugin_v5.get_coll_info(context_, abi::kAllReduce, bytes, 1,
                                     reinterpret_cast<float**>(table->data()), abi::kNumAlgorithms,
                                     abi::kNumProtocols, 0, channels);
  }

 private:
  void* context_ = nullptr;
  bool ok_ = false;
};

// The alternative: scan the rules from the first to the last.
class PlainScan {
 public:
  explicit PlainScan(const std::string& config) : rules_(ParseConfig(config).rules) {}

  // Not inlined into the loop, since the plugin is called through a pointer too.
  [[gnu::noinline]] void Ask(uint64_t bytes, Table* table, int* channels) const {
    const Call call = {abi::kAllReduce, bytes, 1, 0};
    const TableOffer offer(table->data(), abi::kNumAlgorithms, abi::kNumProtocols);
    const Rule* const rule = FirstMatch(
        rules_, call, kScale,
        [&offer](int algorithm, int protocol) { return offer.CanRun(algorithm, protocol); });
    if (rule == nullptr) return;
    offer.Take(rule->algorithm, rule->protocol);
    if (rule->channels != 0) *channels = rule->channels;
  }

 private:
  std::vector<Rule> rules_;
};

Table FreshTable() {
  Table table;
  table.fill(100.0F);
  return table;
}

bool Agree(const Plugin& plugin, const PlainScan& scan, const std::vector<uint64_t>& sizes) {
  for (const uint64_t bytes : sizes) {
    Table ours = FreshTable();
    Table plain = FreshTable();
    int our_channels = 0;
    int plain_channels = 0;
    plugin.Ask(bytes, &ours, &our_channels);
    scan.Ask(bytes, &plain, &plain_channels);
    if (ours != plain || our_channels != plain_channels) return false;
  }
  return true;
}

template <typename Asked>
void TimeCalls(benchmark::State& state, const Asked& asked, const std::vector<uint64_t>& sizes) {
  Table table = FreshTable();
  int channels = 0;
  size_t next = 0;
  for (auto _ : state) {
    asked.Ask(sizes[next], &table, &channels);
    benchmark::ClobberMemory();
    next = (next + 1) % kCalls;
  }
}

template <typename Timed>
void Run(benchmark::State& state) {
  const auto rules = static_cast<size_t>(state.range(0));
  const std::string config = MakeConfig(rules);
  const std::vector<uint64_t> sizes = MakeSizes(rules, static_cast<Kind>(state.range(1)));
  const Plugin plugin(config);
  const PlainScan scan(config);
  if (!plugin.ok() || !Agree(plugin, scan, sizes)) {
    state.SkipWithError("the plugin and the plain scan do not agree");
    return;
  }
  if constexpr (std::is_same_v<Timed, Plugin>) {
    TimeCalls(state, plugin, sizes);
  } else {
    TimeCalls(state, scan, sizes);
  }
}

void Arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rules", "miss"});
  for (const int64_t rules : {10, 100, 2000}) {
    for (const int64_t kind : {kHit, kMiss}) benchmark->Args({rules, kind});
  }
}

BENCHMARK(Run<Plugin>)->Name("plugin_v5")->Apply(Arguments);
BENCHMARK(Run<PlainScan>)->Name("plain_scan")->Apply(Arguments);

}  // namespace
}  // namespace nccltune::tuner

BENCHMARK_MAIN();
