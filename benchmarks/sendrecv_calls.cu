// SPDX-License-Identifier: Apache-2.0
//
// What a group of one small send and one small receive costs natively and through the library, in
// one process and on one communicator, so that starts, which differ by half, do not hide it.
//
//   nvcc -O2 -std=c++17 -o sendrecv_calls benchmarks/sendrecv_calls.cu -ldl
//   NCCLTUNE_SENDRECV=1 ./sendrecv_calls libnccl.so.2 [libnccltune-sendrecv.so] [CORE,CORE]
//
// Two processes with a GPU each, both files by their whole paths. Batches of 200 groups, by NCCL's
// own functions and by the library's, alternating, then the stream is waited for. A line a size:
// microseconds of a group, medians over the batches of the first process; `calls` until the last
// group was enqueued, `all` until it was over. Without the library NCCL alone is measured.
#include <cuda_runtime.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

#include "check.cuh"
#include "nccl.cuh"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kGroups = 200;
constexpr int kBatches = 200;  // of each
constexpr int kWarmUp = 20;
constexpr size_t kMost = size_t{1} << 20;

struct Batch {
  double calls = 0, all = 0;  // us a group
};

class Rank {
 public:
  Rank(Team team, std::vector<Functions> ways) : team_(team), ways_(std::move(ways)) {
    CHECK(cudaSetDevice(team_.rank));
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&memory_, 2 * kMost));
    comm_ = MakeCommunicator(ways_.back(), team_);
  }

  void Measure(size_t bytes) {
    std::vector<std::vector<Batch>> found(ways_.size());
    for (int i = -kWarmUp; i < kBatches; ++i) {
      // ABBA.
      for (size_t j = 0; j < ways_.size(); ++j) {
        const size_t way = i % 2 == 0 ? j : ways_.size() - 1 - j;
        const Batch batch = Time(ways_[way], bytes);
        if (i >= 0) found[way].push_back(batch);
      }
    }
    if (team_.rank != 0) return;
    std::printf("%7zu bytes", bytes);
    for (size_t way = 0; way < found.size(); ++way) {
      std::vector<double> calls, all;
      for (const Batch& each : found[way]) {
        calls.push_back(each.calls);
        all.push_back(each.all);
      }
      std::printf("  %s: calls %.3f all %.3f", way == 0 ? "native" : "library", Median(calls),
                  Median(all));
    }
    if (found.size() == 2) {
      std::vector<double> calls, all;
      for (int i = 0; i < kBatches; ++i) {
        calls.push_back(found[1][i].calls - found[0][i].calls);
        all.push_back(found[1][i].all - found[0][i].all);
      }
      std::printf("  more: calls %+.3f all %+.3f", Median(calls), Median(all));
    }
    std::printf("\n");
  }

  void End() {
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(ways_.back().CommDestroy(comm_));
  }

 private:
  Batch Time(const Functions& nccl, size_t bytes) {
    team_.Meet();
    const int peer = 1 - team_.rank;
    const auto began = Clock::now();
    for (int i = 0; i < kGroups; ++i) {
      CHECK(nccl.GroupStart());
      CHECK(nccl.Send(memory_, bytes, kUint8, peer, comm_, stream_));
      CHECK(nccl.Recv(memory_ + kMost, bytes, kUint8, peer, comm_, stream_));
      CHECK(nccl.GroupEnd());
    }
    const auto called = Clock::now();
    while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
    }
    const auto over = Clock::now();
    using Micros = std::chrono::duration<double, std::micro>;
    return {Micros(called - began).count() / kGroups, Micros(over - began).count() / kGroups};
  }

  Team team_;
  const std::vector<Functions> ways_;
  void* comm_ = nullptr;
  char* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

void KeepTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  CHECK(sched_setaffinity(0, sizeof(cores), &cores));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: sendrecv_calls NCCL [LIBRARY] [CORE,CORE]\n");
    return 2;
  }
  int cores[2] = {-1, -1};
  std::vector<const char*> files;
  for (int i = 1; i < count; ++i) {
    if (std::sscanf(words[i], "%d,%d", cores, cores + 1) != 2) files.push_back(words[i]);
  }
  const Team team = Fork(2);
  if (cores[team.rank] >= 0) KeepTo(cores[team.rank]);
  std::vector<Functions> ways;
  for (const char* file : files) ways.push_back(Open(file));
  Rank own(team, ways);
  for (size_t bytes = 1 << 10; bytes <= kMost; bytes *= 2) own.Measure(bytes);
  own.End();
  return Join(team);
}
