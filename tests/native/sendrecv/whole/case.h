// SPDX-License-Identifier: Apache-2.0
//
// What the cases share: they are GoogleTest programs that the whole test starts with the library
// before NCCL, in an environment of its choice.
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {

// Enough for a copy engine in these tests, and little for sanitizers.
inline constexpr size_t kBytes = size_t{384} << 10;
// A direct message needs an offer, a look and the news of it.
inline constexpr int kWarm = 4;

// CASE_RANK1="NAME=value ...": the environment of that rank alone. Before its first call of NCCL.
void TakeEnvironment(int rank);

inline void* At(soft::CUdeviceptr address) { return reinterpret_cast<void*>(address); }
soft::ncclResult_t Send(soft::CUdeviceptr from, size_t bytes, int peer, soft::ncclComm_t comm,
                        soft::CUstream stream);
soft::ncclResult_t Receive(soft::CUdeviceptr to, size_t bytes, int peer, soft::ncclComm_t comm,
                           soft::CUstream stream);

// Sends that NCCL was given so far by this process.
uint64_t NativeSends();

// What a rank has to exchange with.
struct Pair {
  soft::CUdeviceptr from = 0;
  soft::CUdeviceptr to = 0;
  size_t bytes = 0;
};
Pair NewPair(size_t bytes);
void Free(const Pair& pair);
// One group with a send to `peer` and a receive from it, checked; its bytes are those of the round.
// The first that is not well.
soft::ncclResult_t Exchange(const Pair& pair, int round, int rank, int peer, soft::ncclComm_t comm,
                            soft::CUstream stream);

// Polls as a framework's watchdog does; false: no error within half a minute.
bool LearnsOfAnError(soft::ncclComm_t comm);

// Of this process: threads, open files, mappings of the library's shared memory, and those of them
// whose file has a name that others find.
size_t CountThreads();
size_t CountFiles();
size_t CountSegments();
size_t CountNamedSegments();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_
