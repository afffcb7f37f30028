// SPDX-License-Identifier: Apache-2.0
//
// The data types of NCCL as bytes and numbers, on the host.
#ifndef NCCLTUNE_BENCH_NCCL_ELEMENT_H_
#define NCCLTUNE_BENCH_NCCL_ELEMENT_H_

#include "bench/words.h"

namespace nccltune::bench {

// How a type stores numbers.
struct NumberFormat {
  bool is_real = false;
  bool is_signed = false;
  int digits = 0;          // of the mantissa, the hidden one too; of an integer: its value bits
  int least_exponent = 0;  // real: of the smallest normal number, 2^least_exponent
};

NumberFormat FormatOf(Dtype dtype);

// Every whole number from 0 to this one is stored exactly (at most 2^53).
double LargestExact(Dtype dtype);

// The number in the SizeOf(dtype) bytes at `element`; 64-bit integers are exact up to 2^53.
double Decode(Dtype dtype, const void* element);

// Stores the nearest number, of two the even one; integers must be in range.
void Encode(Dtype dtype, double number, void* element);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_ELEMENT_H_
