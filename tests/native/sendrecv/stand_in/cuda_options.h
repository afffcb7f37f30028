// SPDX-License-Identifier: Apache-2.0
// The options of the CUDA stand-in, from the environment, and random delays.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_

#include "standard.h"

namespace nccltune::soft {

struct CudaOptions {
  int gpus = 4;                 // SOFT_CUDA_GPUS
  std::set<std::string> lacks;  // SOFT_CUDA_LACKS: see README.md
  uint64_t seed = 1;            // SOFT_CUDA_SEED
  unsigned delay_us = 20;       // SOFT_CUDA_DELAY_US: the longest delay of an operation or a piece
  bool blocking = false;        // SOFT_CUDA_BLOCKING
  // CUDA_DEVICE_MAX_CONNECTIONS if SOFT_CUDA_QUEUES=1; 0: each stream has its own queue.
  size_t queues = 0;

  static CudaOptions FromEnvironment();
  bool Lacks(const char* feature) const { return lacks.contains(feature); }
};

// Returns an integer from the environment.
long long NumberOf(const char* variable, long long otherwise);

// A list 'function:n,function:n'. The n-th call of each function is refused once.
class Refusals {
 public:
  explicit Refusals(const char* variable);
  // Counts a call and returns whether to refuse it. The variable may omit the suffix _v2.
  bool Refuses(const char* function);

 private:
  std::mutex mutex_;
  std::map<std::string, long long> left_;  // how many calls are left before the refused one
};

// Returns a random number below `end`, from the calling thread's generator. `end` must not be 0.
uint64_t Chance(uint64_t end);
// Sleeps sometimes, for at most `longest_us`.
void MaybeSleep(unsigned longest_us);
// Sleeps in polling loops. The time grows up to a millisecond.
class Patience {
 public:
  void Sleep();

 private:
  unsigned turns_ = 0;
};

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_OPTIONS_H_
