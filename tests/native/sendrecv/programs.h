// SPDX-License-Identifier: Apache-2.0
// Random programs of sends and receives between several ranks.
#ifndef NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_
#define NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_

#include "sendrecv/lane/message_lane.h"
#include "standard.h"

namespace nccltune::sendrecv {

// One message of a program. `comm` and the two ranks identify its lane.
struct Sent {
  size_t comm = 0;
  size_t from = 0;
  size_t to = 0;
  uint64_t bytes = 0;
  bool captured = false;  // captured on both sides
};

struct Call {
  Role role = Role::kSender;
  size_t message = 0;
};

struct Step {
  size_t stream = 0;
  std::vector<Call> calls;
  bool waits = false;  // waits for its stream before the calls
};

struct Program {
  size_t ranks = 2;
  size_t streams = 1;
  std::vector<Sent> messages;
  std::vector<std::vector<Step>> steps;  // by rank
};

// Describes a program: a line for each rank, groups in braces, `>3` sends message 3.
std::string Words(const Program& program);

struct Kind {
  // Sizes near these three are more likely than others.
  uint64_t floor = 0;
  uint64_t eager = 0;
  uint64_t largest = 0;
  // Groups may mix communicators. NCCL runs a kernel for each of them. In one stream these run one
  // after the other, so such programs may hang.
  bool mixed = true;
  // At most one message of each lane in a group.
  bool single = false;
  // Two ranks, one communicator and large groups.
  bool crowded = false;
};

// Returns a program that NCCL's documentation allows. With `eager` most programs also rely on
// NCCL's buffers, which the documentation does not allow.
Program RandomProgram(std::mt19937_64& random, size_t messages, bool eager, const Kind& kind);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_PROGRAMS_H_
