/* SPDX-License-Identifier: Apache-2.0

   A library with NCCL's functions that only records how they were called. */
#pragma once

#include <stdint.h>

/* More words than there are argument registers, so some are passed on the stack. */
enum { kWords = 26 };

#define WORDS(with)                                                                             \
  with(0), with(1), with(2), with(3), with(4), with(5), with(6), with(7), with(8), with(9),     \
      with(10), with(11), with(12), with(13), with(14), with(15), with(16), with(17), with(18), \
      with(19), with(20), with(21), with(22), with(23), with(24), with(25)
#define WORD_TYPE(i) uint64_t
#define WORD_PARAMETER(i) uint64_t w##i
#define WORD_NAME(i) w##i

typedef uint64_t (*AnyFunction)(WORDS(WORD_TYPE));

typedef struct {
  int ranks;
  int rank;
  int stride;
} FakeTeam;

typedef FakeTeam (*TeamFunction)(WORDS(WORD_TYPE));

/* Returns the last call of this thread. */
typedef struct {
  const char* name;
  uint64_t words[kWords];
} FakeCall;

/* Returns the result of the function of this name, which is different for each function. */
static inline int FakeResult(const char* name) {
  unsigned sum = 7;
  for (; *name != '\0'; ++name) sum = sum * 31 + (unsigned char)*name;
  return (int)(sum & 0xffffffU);
}
