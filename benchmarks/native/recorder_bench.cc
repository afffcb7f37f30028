// SPDX-License-Identifier: Apache-2.0
//
// What the recorder costs a call: all events that NCCL 2.28 to 2.31 report for an all-reduce (two
// of groups, the call, its task), with 20 sizes, and with more sizes than its table has places. The
// alternative is a plugin whose functions return at once. Run them in processes of their own
// (--benchmark_filter=Off/ and On/), because a process has one recorder.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>

#include "profiler/nccl_calls.h"

namespace {

using Communicator = nccltune::profiler::PlayedCommunicator<nccltune::abi::Profiler<6>>;

void Calls(benchmark::State& state, const char* folder) {
  if (folder != nullptr) setenv("NCCLTUNE_RECORD", folder, 1);
  Communicator communicator(RECORDER, "all", 8, 0);
  // Without a folder the recorder asks for nothing, and its functions return at once.
  nccltune::profiler::nccls_mask = 6;
  size_t number = 0;
  nccltune::profiler::ProgramCall call;
  for ([[maybe_unused]] auto _ : state) {
    call.count = 256 * (1 + number++ % static_cast<size_t>(state.range(0)));
    communicator.Play(call);
  }
  unsetenv("NCCLTUNE_RECORD");
}

void Off(benchmark::State& state) { Calls(state, nullptr); }
void On(benchmark::State& state) { Calls(state, "/tmp/nccltune-recorder-bench"); }

BENCHMARK(Off)->ArgName("sizes")->Arg(20);
BENCHMARK(On)->ArgName("sizes")->Arg(20)->Arg(100000);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  std::filesystem::remove_all("/tmp/nccltune-recorder-bench");
}
