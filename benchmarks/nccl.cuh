// SPDX-License-Identifier: Apache-2.0
//
// What measurements share that call NCCL from processes with a GPU each.
#ifndef NCCLTUNE_BENCHMARKS_NCCL_CUH_
#define NCCLTUNE_BENCHMARKS_NCCL_CUH_

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "check.cuh"

constexpr int kUint8 = 1;  // ncclUint8

struct UniqueId {
  char internal[128];
};

// NCCL's functions, of NCCL itself or of a library that interposes on it.
struct Functions {
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(void**, int, UniqueId, int);
  int (*CommDestroy)(void*);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*Send)(const void*, size_t, int, int, void*, cudaStream_t);
  int (*Recv)(void*, size_t, int, int, void*, cudaStream_t);
};

template <typename Function>
void Find(void* file, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(file, name));
  if (*function == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
}

inline Functions Open(const char* path) {
  void* file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  Functions found = {};
  Find(file, "ncclGetUniqueId", &found.GetUniqueId);
  Find(file, "ncclCommInitRank", &found.CommInitRank);
  Find(file, "ncclCommDestroy", &found.CommDestroy);
  Find(file, "ncclGroupStart", &found.GroupStart);
  Find(file, "ncclGroupEnd", &found.GroupEnd);
  Find(file, "ncclSend", &found.Send);
  Find(file, "ncclRecv", &found.Recv);
  return found;
}

// In memory of all processes.
struct Shared {
  int ranks;
  UniqueId id;
  std::atomic<bool> ready;  // the id
  std::atomic<int> arrived;
  std::atomic<bool> answer;  // of rank 0, between two meetings
};

// This process and those that it makes, one after the other.
struct Team {
  Shared* shared;
  int rank;
  int round = 0;

  void Meet() {
    ++shared->arrived;
    ++round;
    while (shared->arrived < shared->ranks * round) sched_yield();
  }
};

inline Team Fork(int ranks) {
  void* const where =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared* const shared = new (where) Shared{};
  shared->ranks = ranks;
  for (int rank = 1; rank < ranks; ++rank) {
    if (fork() == 0) return {shared, rank};
  }
  return {shared, 0};
}

// The exit code of the program.
inline int Join(const Team& team) {
  if (team.rank != 0) return 0;
  bool well = true;
  int status = 0;
  while (wait(&status) > 0) well &= status == 0;
  return well ? 0 : 1;
}

inline void* MakeCommunicator(const Functions& nccl, const Team& team) {
  if (team.rank == 0) {
    CHECK(nccl.GetUniqueId(&team.shared->id));
    team.shared->ready = true;
  }
  while (!team.shared->ready) sched_yield();
  void* comm = nullptr;
  CHECK(nccl.CommInitRank(&comm, team.shared->ranks, team.shared->id, team.rank));
  return comm;
}

#endif  // NCCLTUNE_BENCHMARKS_NCCL_CUH_
