// SPDX-License-Identifier: Apache-2.0
//
// Conversion between numbers and the bytes of NCCL's data types, on the host.
#ifndef NCCLTUNE_BENCH_NCCL_ELEMENT_H_
#define NCCLTUNE_BENCH_NCCL_ELEMENT_H_

#include "bench/words.h"

namespace nccltune::bench {

// The range and precision of a number type.
struct NumberFormat {
  bool is_real = false;
  bool is_signed = false;
  // Bits of the mantissa, including the implicit bit. For an integer, the bits without the sign.
  int digits = 0;
  // For floating point: the smallest normal number is 2^least_exponent.
  int least_exponent = 0;
};

NumberFormat FormatOf(Dtype dtype);

// Returns the largest number N such that all integers from 0 to N are stored exactly (at most
// 2^53).
double LargestExact(Dtype dtype);

// Reads the number in the SizeOf(dtype) bytes at `element`. 64-bit integers are exact up to 2^53.
double Decode(Dtype dtype, const void* element);

// Stores the nearest representable number; ties go to the even one. Integers must be in range.
void Encode(Dtype dtype, double number, void* element);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_ELEMENT_H_
