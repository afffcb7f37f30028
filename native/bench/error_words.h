// SPDX-License-Identifier: Apache-2.0
//
// Texts for error messages.
#ifndef NCCLTUNE_BENCH_ERROR_WORDS_H_
#define NCCLTUNE_BENCH_ERROR_WORDS_H_

#include <chrono>
#include <string>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// Returns a text such as "tree/ll on 2 channels" or "NCCL's default".
std::string InWords(const Choice& choice);

// Returns a text such as "allreduce of 4096 bytes with tree/ll".
std::string InWords(const Step& step);

// Returns a text such as "process 3" or "processes 1, 3-5".
std::string Processes(const std::vector<int>& numbers);

// Returns a text such as "0.4 s".
std::string InSeconds(std::chrono::duration<double> time);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ERROR_WORDS_H_
