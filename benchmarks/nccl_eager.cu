// SPDX-License-Identifier: Apache-2.0
//
// How many bytes NCCL's buffers hold: up to which size a send is over before its receive is called.
//
//   nvcc -O2 -std=c++17 -o nccl_eager benchmarks/nccl_eager.cu -ldl
//   ./nccl_eager libnccl.so.2 RANKS [MIB...]
//
// A process for each GPU; rank 0 sends to rank 1, which receives only when rank 0 has seen whether
// that ends by itself. By bisection to 1 %, for one message and for messages of so many MiB one
// after the other.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.cuh"
#include "nccl.cuh"

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::milliseconds(200);  // 64 MiB take 0.4 ms
constexpr size_t kLeast = size_t{64} << 10;
constexpr size_t kMost = size_t{1} << 30;

class Sends {
 public:
  Sends(Team team, const Functions& nccl) : team_(team), nccl_(nccl) {
    CHECK(cudaSetDevice(team_.rank));
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&memory_, kMost));
    comm_ = MakeCommunicator(nccl_, team_);
    // NCCL connects two ranks at their first message, with both taking part.
    Call(kLeast, kLeast);
    CHECK(cudaStreamSynchronize(stream_));
  }

  // Up to how many bytes, in messages of `part` or, with 0, in one.
  void Bisect(size_t part) {
    size_t ends = 0;
    size_t waits = std::max(kLeast, part);
    while (waits <= kMost && Ends(waits, part)) {
      ends = waits;
      waits *= 2;
    }
    const size_t step = part != 0 ? part : kLeast;
    while (waits <= kMost && waits - ends > std::max(step, ends / 100)) {
      const size_t between = ends + (waits - ends) / 2 / step * step;
      (Ends(between, part) ? ends : waits) = between;
    }
    if (team_.rank != 0) return;
    const std::string what =
        part == 0 ? "one message" : "messages of " + std::to_string(part >> 20) + " MiB";
    std::printf("%-20s a send ends by itself up to %.2f MiB", what.c_str(), ends / 1048576.0);
    if (waits <= kMost) std::printf(", waits with %.2f MiB", waits / 1048576.0);
    std::printf("\n");
  }

  void End() {
    team_.Meet();
    CHECK(nccl_.CommDestroy(comm_));
  }

 private:
  void Call(size_t bytes, size_t part) {
    for (size_t at = 0; at < bytes; at += part) {
      const size_t here = std::min(part, bytes - at);
      if (team_.rank == 0) CHECK(nccl_.Send(memory_ + at, here, kUint8, 1, comm_, stream_));
      if (team_.rank == 1) CHECK(nccl_.Recv(memory_ + at, here, kUint8, 0, comm_, stream_));
    }
  }

  bool Ends(size_t bytes, size_t part) {
    if (part == 0) part = bytes;
    team_.Meet();
    if (team_.rank == 0) {
      const auto began = Clock::now();
      Call(bytes, part);
      bool over = false;
      while (!over && Clock::now() - began < kPatience) {
        over = cudaStreamQuery(stream_) == cudaSuccess;
      }
      team_.shared->answer = over;
    }
    team_.Meet();
    const bool over = team_.shared->answer;
    if (team_.rank == 1) Call(bytes, part);
    CHECK(cudaStreamSynchronize(stream_));
    return over;
  }

  Team team_;
  const Functions nccl_;
  void* comm_ = nullptr;
  char* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  const int ranks = count < 3 ? 0 : std::atoi(words[2]);
  if (ranks < 2) {
    std::fprintf(stderr, "usage: nccl_eager NCCL RANKS [MIB...]\n");
    return 2;
  }
  const Team team = Fork(ranks);
  Sends sends(team, Open(words[1]));
  sends.Bisect(0);
  for (int i = 3; i < count; ++i) sends.Bisect(std::strtoull(words[i], nullptr, 10) << 20);
  sends.End();
  return Join(team);
}
