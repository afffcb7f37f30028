// SPDX-License-Identifier: Apache-2.0
// Helpers of the test cases. The cases are GoogleTest programs. The whole test starts them with the
// send/recv library, each in an environment of its own.
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_CASE_H_

#include "sendrecv/stand_in/processes.h"
#include "standard.h"

namespace nccltune::sendrecv {

// Large enough for a copy engine in these tests, and small enough for sanitizers.
inline constexpr size_t kBytes = size_t{384} << 10;
// Rounds until copy engines carry messages: the memory is exported, mapped and reported first.
inline constexpr int kWarm = 4;

// Applies CASE_RANK1="NAME=value ...", the environment of rank 1 alone. Call it before the first
// NCCL call.
void TakeEnvironment(int rank);

inline void* At(soft::CUdeviceptr address) { return reinterpret_cast<void*>(address); }

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

// Makes calls in a group.
void Grouped(const std::function<void()>& calls);

// One rank of a case. Its functions expect success.
struct Member {
  soft::Ranks& ranks;
  int rank = 0;
  soft::ncclComm_t comm = nullptr;
  soft::CUstream stream = soft::NewStream();
  Pair pair = NewPair(kBytes);
  int peer = 1 - rank;  // of the calls below

  // This rank in another communicator, or with other buffers.
  Member In(soft::ncclComm_t other, int rank_there, int peer_there) const;
  Member With(const Pair& other) const;

  void Meet() const { ranks.Meet(); }
  // Write the content of a seed to what is sent, overwrite what is received, and compare it.
  void Put(int seed) const;
  void Clear() const;
  void ExpectReceived(int seed) const;

  void Send() const;
  void Receive() const;
  // Makes this rank's call for a message of rank `sender`.
  void Transfer(int sender) const { rank == sender ? Send() : Receive(); }
  void Wait() const;
  // Returns whether the stream is idle within half a minute.
  bool Ends() const;
  // Runs one group with a send to the peer and a receive from it, and checks the contents, which
  // depend on the round. Returns the first error.
  soft::ncclResult_t Exchange(int round) const;
  // Repeats exchanges. After kWarm of them both ranks have mapped each other's memory.
  void Warm(int rounds = kWarm) const;
  void Destroy() const;
  void Abort() const;
};

// Runs a case in a process for each rank. Two ranks have made `rounds` exchanges before. `killed`:
// a rank that is expected to die by SIGKILL.
void RunRanks(int count, int rounds, const std::function<void(Member&)>& body, int killed = -1);
inline void RunTwo(int rounds, const std::function<void(Member&)>& body) {
  RunRanks(2, rounds, body);
}

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
