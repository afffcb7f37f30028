// SPDX-License-Identifier: Apache-2.0
//
// Programs of sends and receives by several ranks, made by chance.
#ifndef NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_
#define NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sendrecv/lane.h"

namespace nccltune::sendrecv {

// A message of a program. `comm` and the two ranks name its lane.
struct Sent {
  size_t comm = 0;
  size_t from = 0;
  size_t to = 0;
  uint64_t bytes = 0;
  bool captured = false;  // on both sides
};

struct Call {
  Role role = Role::kSender;
  size_t message = 0;
};

struct Step {
  size_t stream = 0;
  std::vector<Call> calls;
};

struct Program {
  size_t ranks = 2;
  size_t streams = 1;
  std::vector<Sent> messages;
  std::vector<std::vector<Step>> steps;  // by rank
};

// For who looks into one: a line a rank, a group in braces, `>3` sends message 3.
std::string Words(const Program& program);

struct Kind {
  // Sizes that are something special are likely.
  uint64_t floor = 0;
  uint64_t eager = 0;
  uint64_t largest = 0;
  // A group may have messages of several communicators. NCCL has a kernel for each, one behind the
  // other where they are in one stream, so that such programs may hang.
  bool mixed = true;
  // Not two messages of the same lane in one group.
  bool single = false;
};

// Legal for NCCL as far as its documents go; and with `eager` such as rely on its buffers, most of
// which are not.
Program RandomProgram(std::mt19937_64& random, size_t messages, bool eager, const Kind& kind);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_
