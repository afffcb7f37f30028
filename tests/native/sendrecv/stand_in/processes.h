// SPDX-License-Identifier: Apache-2.0
// Runs the ranks of a test as processes. They are forked before CUDA is used.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"
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

class Ranks {
 public:
  explicit Ranks(int count);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Shared& shared() { return *shared_; }

  // Runs `body` in a process for each rank, with the rank's number. A failed expectation there
  // fails the test. `killed`: a rank that is expected to die by SIGKILL.
  void Run(const std::function<void(int)>& body, int killed = -1);

  // A barrier for the ranks. `without`: number of ranks that do not take part.
  void Meet(int without = 0);

 private:
  int count_;
  int meetings_ = 0;
  Shared* shared_;
};

// Makes the primary context of a GPU current on this thread.
void UseGpu(int gpu);
// Creates a nonblocking stream.
CUstream NewStream();

// Waits up to half a minute for the condition, and returns it.
bool Soon(const std::function<bool()>& condition);

// Returns bytes that depend on the seed and on their position.
std::vector<uint8_t> Pattern(size_t bytes, int seed);

// Allocates device memory with such bytes, or with 0xEE if the seed is negative.
CUdeviceptr Fill(size_t bytes, int seed);
std::vector<uint8_t> Fetch(CUdeviceptr address, size_t bytes);

// Creates a communicator of the ranks. The first rank makes the unique id.
ncclComm_t Init(Ranks& ranks, int count, int rank);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_
