// SPDX-License-Identifier: Apache-2.0
//
// What measurements of GPUs share.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

// A call of CUDA, NCCL or the system that returns 0 where it is well; else the program ends.
#define CHECK(call)                                                                 \
  do {                                                                              \
    const auto result = (call);                                                     \
    if (static_cast<int>(result) != 0) {                                            \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call,      \
                   static_cast<int>(result));                                       \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
