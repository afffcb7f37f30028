// SPDX-License-Identifier: Apache-2.0
//
// Helpers of the test cases. The cases are GoogleTest programs. The whole test starts them with the
// send/recv library, each in an environment of its own.
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {

// Large enough for a copy engine in these tests, and small enough for sanitizers.
inline constexpr size_t kBytes = size_t{384} << 10;
// Rounds until copy engines carry messages: the memory is exported, mapped and reported first.
inline constexpr int kWarm = 4;

// Applies CASE_RANK1="NAME=value ...", the environment of rank 1 alone. Call it before the first
// NCCL call.
void TakeEnvironment(int rank);

inline void* At(soft::CUdeviceptr address) { return reinterpret_cast<void*>(address); }
soft::ncclResult_t Send(soft::CUdeviceptr from, size_t bytes, int peer, soft::ncclComm_t comm,
                        soft::CUstream stream);
soft::ncclResult_t Receive(soft::CUdeviceptr to, size_t bytes, int peer, soft::ncclComm_t comm,
                           soft::CUstream stream);

// Returns how many sends of this process NCCL has got so far.
uint64_t NativeSends();

// The buffers with which a rank exchanges messages.
struct Pair {
  soft::CUdeviceptr from = 0;
  soft::CUdeviceptr to = 0;
  size_t bytes = 0;
};
Pair NewPair(size_t bytes);
void Free(const Pair& pair);
// Runs one group with a send to `peer` and a receive from it, and checks the contents, which depend
// on the round. Returns the first error.
soft::ncclResult_t Exchange(const Pair& pair, int round, int rank, int peer, soft::ncclComm_t comm,
                            soft::CUstream stream);

// Repeats exchanges. After kWarm of them both ranks have mapped each other's memory.
void Warm(soft::Ranks& two, const Pair& pair, int rank, soft::ncclComm_t comm,
          soft::CUstream stream, int rounds = kWarm);

// Runs a case of two ranks. Each gets a communicator, a stream, and buffers of kBytes with which it
// has made `rounds` exchanges.
using TwoRanksCase = std::function<void(soft::Ranks& two, int rank, soft::ncclComm_t comm,
                                        soft::CUstream stream, const Pair& pair)>;
void RunTwo(int rounds, const TwoRanksCase& body);

// Polls for an error like a framework's watchdog. Returns false if there is none within half a
// minute.
bool LearnsOfAnError(soft::ncclComm_t comm);

// Returns when the library's thread has checked everything once more. Needs CaseWithChecks
// (output.h).
void AwaitCheck();
// Waits until a process has ended, whether its parent knows or not.
void AwaitEnd(pid_t process);

// Return numbers for this process: threads, open files, mappings of the library's shared memory,
// and those of them whose file still has a name.
size_t CountThreads();
size_t CountFiles();
size_t CountSegments();
// Returns a descriptor of the library's file in shared memory, or -1.
int FileOfSegment();
size_t CountNamedSegments();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_
