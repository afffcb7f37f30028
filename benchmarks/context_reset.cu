// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a program's handles after cudaDeviceReset: which of CUDA's calls crash with one,
// and how a library learns of the reset.
//
//   nvcc -O2 -std=c++17 -o context_reset benchmarks/context_reset.cu -lcuda
//   ./context_reset
//
// Each call runs in processes of its own, with eight streams and events of the context before the
// reset; once after the reset alone, once after the context was used again.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "check.cuh"

namespace {

constexpr int kTimes = 8;

struct Handles {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  std::vector<CUstream> streams{kTimes};
  std::vector<CUevent> events{kTimes};
};

Handles Make() {
  Handles made;
  CHECK(cudaFree(nullptr));
  CHECK(cuCtxGetCurrent(&made.context));
  CHECK(cuMemAlloc(&made.memory, 256));
  for (int i = 0; i < kTimes; ++i) {
    CHECK(cuStreamCreate(&made.streams[i], CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&made.events[i], CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemsetD8Async(made.memory, 1, 256, made.streams[i]));
    CHECK(cuEventRecord(made.events[i], made.streams[i]));
  }
  return made;
}

// Returns the number of processes that a signal ended.
int CountCrashes(const std::function<void()>& work) {
  int crashes = 0;
  for (int i = 0; i < kTimes; ++i) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      work();
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child ? 0 : 1);
    if (WIFSIGNALED(status)) ++crashes;
  }
  return crashes;
}

void PrintIdentity(const char* when, const Handles& handles) {
  unsigned long long id = 0;
  const CUresult result = cuCtxGetId(handles.context, &id);
  std::printf("%s: cuCtxGetId returns %d, id %llu\n", when, static_cast<int>(result), id);
}

void PrintIdentities() {
  const Handles handles = Make();
  PrintIdentity("before the reset", handles);
  CHECK(cudaDeviceReset());
  PrintIdentity("after the reset", handles);
  CHECK(cudaFree(nullptr));
  PrintIdentity("used again", handles);
  CUdeviceptr other = 0;
  CHECK(cuMemAlloc(&other, 256));
  const CUresult freed = cuMemFree(handles.memory);
  std::printf("a new allocation has %s address; cuMemFree of the old address returns %d\n",
              other == handles.memory ? "the same" : "another", static_cast<int>(freed));
}

struct Call {
  const char* name;
  std::function<void(const Handles&)> run;
};

}  // namespace

int main() {
  if (fork() == 0) {
    PrintIdentities();
    return 0;
  }
  wait(nullptr);
  const std::vector<Call> calls = {
      {"cuStreamDestroy",
       [](const Handles& old) {
         for (CUstream each : old.streams) cuStreamDestroy(each);
       }},
      {"cuStreamQuery",
       [](const Handles& old) {
         for (CUstream each : old.streams) cuStreamQuery(each);
       }},
      {"cuEventDestroy",
       [](const Handles& old) {
         for (CUevent each : old.events) cuEventDestroy(each);
       }},
      {"cuEventQuery",
       [](const Handles& old) {
         for (CUevent each : old.events) cuEventQuery(each);
       }},
      {"cuCtxRecordEvent",
       [](const Handles& old) {
         for (CUevent each : old.events) cuCtxRecordEvent(old.context, each);
       }},
      {"cuMemFree", [](const Handles& old) { cuMemFree(old.memory); }},
  };
  std::printf("\n| call | crashes of %d after a reset | used again |\n| --- | --- | --- |\n",
              kTimes);
  for (const Call& call : calls) {
    std::printf("| `%s` |", call.name);
    for (const bool again : {false, true}) {
      std::printf(" %d |", CountCrashes([&] {
                    const Handles old = Make();
                    CHECK(cudaDeviceReset());
                    if (again) CHECK(cudaFree(nullptr));
                    call.run(old);
                  }));
    }
    std::printf("\n");
  }
  return 0;
}
