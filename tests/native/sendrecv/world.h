// SPDX-License-Identifier: Apache-2.0
//
// Ranks that send and receive by RunGroup on a machine in software, and programs for them.
#ifndef NCCLTUNE_TESTS_SENDRECV_WORLD_H_
#define NCCLTUNE_TESTS_SENDRECV_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sendrecv/group.h"
#include "sendrecv/native_model.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kEagerLimit = 1024;
inline constexpr uint64_t kFloor = 128;

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

// Legal for NCCL as far as its documents go; and with `eager` such as rely on its buffers, most of
// which are not.
Program RandomProgram(Random& random, size_t messages, bool eager);

struct Ran {
  bool over = false;
  std::string trouble;           // empty: all bytes were right
  std::map<Path, size_t> paths;  // how often
};

// How likely a message can be carried by a copy engine; 0: all by NCCL.
Ran RunProgram(const Program& program, Random& random, double possible);

// The same by threads, one for each rank.
Ran RunProgramByThreads(const Program& program, uint64_t seed, double possible);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WORLD_H_
