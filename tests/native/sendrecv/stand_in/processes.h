// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a test as processes. They are forked before CUDA is used.
#pragma once

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"
#include "standard.h"
#include "testing.h"

namespace nccltune::soft {

// Memory that the processes of a test share. It is all zero at first.
struct Shared {
  std::atomic<int> arrived;
  ncclUniqueId id;
  CUipcMemHandle handle;
  CUipcMemHandle handles[4];
  int numbers[8];
  std::atomic<uint32_t> flags[64];
  alignas(4096) uint32_t page[1024];  // memory for tests that pin it
};

inline constexpr unsigned kLimitSeconds = 400;

// Waits up to two minutes for the condition, and returns it.
inline bool Soon(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

class Ranks {
 public:
  explicit Ranks(int count) : count_(count) {
    void* const shared =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) std::abort();
    shared_ = static_cast<Shared*>(shared);
  }
  ~Ranks() { munmap(shared_, sizeof(Shared)); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Shared& shared() { return *shared_; }

  // Runs `body` in a process for each rank, with the rank's number. A failed expectation there
  // fails the test. `killed`: a rank that is expected to die by SIGKILL.
  void Run(const std::function<void(int)>& body, int killed = -1) {
    std::vector<pid_t> processes;
    for (int rank = 0; rank < count_; ++rank) {
      const pid_t process = fork();
      if (process == 0) {
        // Ends a rank that hangs; its number appears in the report.
        alarm(kLimitSeconds);
        body(rank);
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      ASSERT_GT(process, 0);
      processes.push_back(process);
    }
    for (int rank = 0; rank < count_; ++rank) {
      int status = 0;
      ASSERT_EQ(waitpid(processes[static_cast<size_t>(rank)], &status, 0),
                processes[static_cast<size_t>(rank)]);
      if (rank == killed) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "rank " << rank;
      } else {
        EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << ": signal " << WTERMSIG(status);
        EXPECT_EQ(WEXITSTATUS(status), 0) << "rank " << rank;
      }
    }
  }

  // A barrier for the ranks. `without`: number of ranks that do not take part.
  void Meet(int without = 0) {
    ++meetings_;
    shared_->arrived.fetch_add(1);
    const int all = (count_ - without) * meetings_;
    EXPECT_TRUE(Soon([&] { return shared_->arrived.load() >= all; })) << "others did not come";
  }

 private:
  int count_;
  int meetings_ = 0;
  Shared* shared_;
};

// Makes the primary context of a GPU current on this thread.
inline void UseGpu(int gpu) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuInit(0), kCudaSuccess);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, gpu), kCudaSuccess);
  ASSERT_EQ(cuCtxSetCurrent(context), kCudaSuccess);
}

// Creates a nonblocking stream.
inline CUstream NewStream() {
  CUstream stream = nullptr;
  EXPECT_EQ(cuStreamCreate(&stream, kStreamNonBlocking), kCudaSuccess);
  return stream;
}

// Returns bytes that depend on the seed and on their position.
inline std::vector<uint8_t> Pattern(size_t bytes, int seed) {
  std::vector<uint8_t> data(bytes);
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761U + 1;
  // Raw pointers, because iterators are slow in builds without inlining.
  uint8_t* const to = data.data();
  for (size_t i = 0; i < bytes; ++i) {
    state = state * 1664525U + 1013904223U;
    to[i] = static_cast<uint8_t>(state >> 24U);
  }
  return data;
}

// Allocates device memory with such bytes, or with 0xEE if the seed is negative.
inline CUdeviceptr Fill(size_t bytes, int seed) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, bytes), kCudaSuccess);
  const std::vector<uint8_t> data =
      seed < 0 ? std::vector<uint8_t>(bytes, 0xEE) : Pattern(bytes, seed);
  EXPECT_EQ(cuMemcpyHtoD_v2(address, data.data(), bytes), kCudaSuccess);
  return address;
}

inline std::vector<uint8_t> Fetch(CUdeviceptr address, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  EXPECT_EQ(cuMemcpyDtoH_v2(data.data(), address, bytes), kCudaSuccess);
  return data;
}

// Creates a communicator of the ranks. The first rank makes the unique id.
inline ncclComm_t Init(Ranks& ranks, int count, int rank) {
  UseGpu(rank);
  if (rank == 0) {
    EXPECT_EQ(ncclGetUniqueId(&ranks.shared().id), kNcclSuccess);
  }
  ranks.Meet();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, count, ranks.shared().id, rank), kNcclSuccess)
      << ncclGetLastError(nullptr);
  return comm;
}

}  // namespace nccltune::soft
