// SPDX-License-Identifier: Apache-2.0
//
// Ranks that run programs by RunGroup on a machine in software.
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
#include "sendrecv/programs.h"
#include "sendrecv/soft_driver.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kEagerLimit = 1024;
inline constexpr uint64_t kFloor = 128;
inline constexpr Kind kKind = {.floor = kFloor, .eager = kEagerLimit, .largest = 3 * kEagerLimit};

// Straight from memory to memory, and through buffers of the receivers.
inline constexpr Policy kCopies = {.eager_limit = kEagerLimit};
inline constexpr Policy kWithGraphs = {.eager_limit = kEagerLimit, .graphs = true};
inline constexpr Policy kThroughBuffers = {.eager_limit = kEagerLimit, .fifo = true};

struct Ran {
  bool over = false;
  std::string trouble;           // empty: all bytes were right
  std::map<Path, size_t> paths;  // how often
};

// How likely a message can be carried by a copy engine; 0: all by NCCL.
Ran RunProgram(const Program& program, Random& random, double possible,
               const Policy& policy = kCopies);

// The same by threads, one for each rank.
Ran RunProgramByThreads(const Program& program, uint64_t seed, double possible,
                        const Policy& policy = kCopies);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WORLD_H_
