// SPDX-License-Identifier: Apache-2.0
//
// What errors are about, in words.
#ifndef NCCLTUNE_BENCH_ERROR_WORDS_H_
#define NCCLTUNE_BENCH_ERROR_WORDS_H_

#include <chrono>
#include <string>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// "tree/ll on 2 channels", "NCCL's default"
std::string InWords(const Choice& choice);

// "allreduce of 4096 bytes with tree/ll"
std::string InWords(const Step& step);

// "process 3", "processes 1, 3-5"
std::string Processes(const std::vector<int>& numbers);

// "0.4 s"
std::string InSeconds(std::chrono::duration<double> time);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_ERROR_WORDS_H_
