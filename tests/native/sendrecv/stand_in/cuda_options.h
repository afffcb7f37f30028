// SPDX-License-Identifier: Apache-2.0
//
// What the environment asks of the CUDA stand-in, and chance.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace nccltune::soft {

struct CudaOptions {
  int gpus = 4;                 // SOFT_CUDA_GPUS
  std::set<std::string> lacks;  // SOFT_CUDA_LACKS: memops, hostregister, ipc, vmm, peer
  uint64_t seed = 1;            // SOFT_CUDA_SEED
  unsigned delay_us = 20;       // SOFT_CUDA_DELAY_US: the longest delay of an operation or a piece
  // CUDA_DEVICE_MAX_CONNECTIONS where SOFT_CUDA_QUEUES=1; 0: each stream has a queue of its own.
  size_t queues = 0;

  static CudaOptions FromEnvironment();
  bool Lacks(const char* feature) const { return lacks.contains(feature); }
};

// An integer of the environment.
long long NumberOf(const char* variable, long long otherwise);

// 'function:n,function:n': the n-th call of that function is refused, once.
class Refusals {
 public:
  explicit Refusals(const char* variable);
  // A call; a suffix _v2 may be left out in the variable. True: refuse it.
  bool Refuses(const char* function);

 private:
  std::mutex mutex_;
  std::map<std::string, long long> left_;  // calls
};

// Of the calling thread: below `end`, which is not 0.
uint64_t Chance(uint64_t end);
// Sleeps now and then, for `longest_us` at most.
void MaybeSleep(unsigned longest_us);
// For loops that look whether something changed elsewhere: longer and longer, to a millisecond.
class Patience {
 public:
  void Sleep();

 private:
  unsigned turns_ = 0;
};

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_
