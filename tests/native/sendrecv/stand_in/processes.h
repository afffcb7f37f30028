// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a test as processes, forked before anything of CUDA is used.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

// What the processes of one test share; zeros at first.
struct Shared {
  std::atomic<int> arrived;
  ncclUniqueId id;
  CUipcMemHandle handle;
  CUipcMemHandle handles[4];
  int numbers[8];
  std::atomic<uint32_t> flags[64];
  alignas(4096) uint32_t page[1024];  // for memory that CUDA pins
};

class Ranks {
 public:
  explicit Ranks(int count);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Shared& shared() { return *shared_; }

  // Each in a process of its own with its number; an expectation that fails there fails here. A
  // rank of `killed` is to die by SIGKILL.
  void Run(const std::function<void(int)>& body, int killed = -1);

  // In the ranks: returns when all but `without` so many have come so often.
  void Meet(int without = 0);

 private:
  int count_;
  int meetings_ = 0;
  Shared* shared_;
};

// The primary context of a GPU, for the calling thread.
void UseGpu(int gpu);
// That no other one waits for.
CUstream NewStream();

// Within half a minute.
bool Soon(const std::function<bool()>& condition);

// Bytes that differ by rank, message and place.
std::vector<uint8_t> Pattern(size_t bytes, int seed);

// Device memory with such bytes, or 0xEE for a negative seed.
CUdeviceptr Fill(size_t bytes, int seed);
std::vector<uint8_t> Fetch(CUdeviceptr address, size_t bytes);

// Of `ranks`, the first of which makes the id.
ncclComm_t Init(Ranks& ranks, int count, int rank);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_PROCESSES_H_
