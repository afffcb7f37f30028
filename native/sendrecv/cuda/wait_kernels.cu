// SPDX-License-Identifier: Apache-2.0
// The code of the wait kernels (wait_kernels.h). The build has no CUDA compiler: wait_kernels.inc
// is the PTX of this file, for GPUs from compute capability 7.0 and drivers from CUDA 10.2. After a
// change:
//
//   native/sendrecv/wait_kernels.sh nvcc
#include <cstdint>

namespace {

struct Limits {
  uint64_t held_up_ns;
  uint64_t alone_ns;
  uint64_t longest_ns;
};

struct Gate {
  uint64_t* started;
  uint64_t start;
  uint32_t* begun;
  uint32_t* ready;
  uint32_t* late;
  uint32_t* held_up;
  uint32_t* expired;
  Limits limits;
  uint32_t value;
  uint32_t begun_value;
};

struct Value {
  uint32_t* flag;
  uint32_t value;
};

struct Pull {
  uint32_t* copied;
  uint32_t* late;
  uint32_t* ready;
  uint32_t* done;
  char* to;
  const char* from;
  uint64_t bytes;
  uint32_t value;
};

struct Exchange {
  uint64_t* started;
  uint64_t start;
  uint32_t* expired;
  uint64_t longest_ns;
  uint32_t raise_count;
  uint32_t wait_count;
  uint32_t pull_count;
  uint32_t collected_count;
  Value collected;
  Value raises[32];
  Value waits[64];
  Pull pulls[32];
};

constexpr unsigned kAll = 0xffffffff;
constexpr uint32_t kReleased = 1U << 29;
// Short, because the latency of a message contains it. A read of the host's memory takes longer.
constexpr unsigned kSleep = 100;

// Flags may be in the host's memory, so the scope is the system.
__device__ uint32_t Load(const uint32_t* flag) {
  uint32_t value = 0;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void Store(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

__device__ uint64_t LoadStarted(const uint64_t* started) {
  uint64_t value = 0;
  asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(started) : "memory");
  return value;
}

// Groups that start at the same time may write in any order, so the largest number counts.
__device__ void Start(uint64_t* started, uint64_t start) {
  asm volatile("red.release.gpu.max.u64 [%0], %1;" : : "l"(started), "l"(start) : "memory");
}

__device__ bool Reached(uint32_t flag, uint32_t value) {
  return static_cast<int32_t>(flag - value) >= 0;
}

__device__ uint64_t Now() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ void Sleep() { asm volatile("nanosleep.u32 %0;" : : "n"(kSleep)); }

// Copies with all threads of the warp.
__device__ void Copy(char* to, const char* from, uint64_t bytes, unsigned thread) {
  uint64_t at = 0;
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % 16 == 0) {
    // Four loads for each thread are in flight.
    constexpr uint64_t kStep = 32 * 16;
    for (; at + 4 * kStep <= bytes; at += 4 * kStep) {
      uint32_t part[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[i][0]), "=r"(part[i][1]), "=r"(part[i][2]), "=r"(part[i][3])
                     : "l"(from + at + i * kStep + thread * 16)
                     : "memory");
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(to + at + i * kStep + thread * 16), "r"(part[i][0]), "r"(part[i][1]),
                       "r"(part[i][2]), "r"(part[i][3])
                     : "memory");
      }
    }
  }
  for (at += thread; at < bytes; at += 32) {
    *(static_cast<volatile char*>(to) + at) = *(static_cast<const volatile char*>(from) + at);
  }
}

}  // namespace

extern "C" __global__ void nccltune_gate(const __grid_constant__ Gate gate) {
  if (threadIdx.x != 0) return;
  const uint64_t begin = Now();
  while (!Reached(Load(gate.begun), gate.begun_value)) {
    if (Now() - begin > gate.limits.longest_ns) {
      Store(gate.expired, 1);
      return;
    }
    Sleep();
  }
  const uint64_t reached = Now();
  uint64_t held_up = 0;  // since when the pull holds up a later group
  while (!Reached(Load(gate.ready), gate.value)) {
    const uint64_t now = Now();
    if (held_up == 0 && LoadStarted(gate.started) > gate.start) held_up = now;
    const bool gives_way = held_up != 0 && now - held_up > gate.limits.held_up_ns;
    if (gives_way || now - reached > gate.limits.alone_ns) {
      if (gives_way) Store(gate.held_up, 1);
      Store(gate.late, gate.value);
      return;
    }
    Sleep();
  }
}

extern "C" __global__ void nccltune_exchange(const __grid_constant__ Exchange exchange) {
  const unsigned thread = threadIdx.x;
  if (thread == 0 && exchange.start != 0) Start(exchange.started, exchange.start);
  if (thread < exchange.raise_count) {
    Store(exchange.raises[thread].flag, exchange.raises[thread].value);
  }
  bool pull = thread < exchange.pull_count;
  bool first = thread < exchange.wait_count;
  bool second = thread + 32 < exchange.wait_count;
  const uint64_t begin = Now();
  while (true) {
    bool copies = false;
    if (pull) {
      const Pull& mine = exchange.pulls[thread];
      if (Reached(Load(mine.copied), mine.value)) {
        if (Load(mine.late) != mine.value) {
          Store(mine.done, mine.value);
          pull = false;
        } else {
          const uint32_t ready = Load(mine.ready);
          if (Reached(ready, mine.value)) {
            // A released wait: the peer may be gone, so its memory is not touched.
            copies = ready - mine.value < kReleased;
            pull = copies;
          }
        }
      }
    }
    for (unsigned left = __ballot_sync(kAll, copies); left != 0; left &= left - 1) {
      const unsigned which = __ffs(static_cast<int>(left)) - 1;
      const Pull& late = exchange.pulls[which];
      Copy(late.to, late.from, late.bytes, thread);
      __threadfence_system();
      __syncwarp();
      if (thread == which) {
        Store(late.done, late.value);
        pull = false;
      }
    }
    if (first) first = !Reached(Load(exchange.waits[thread].flag), exchange.waits[thread].value);
    if (second) {
      second = !Reached(Load(exchange.waits[thread + 32].flag), exchange.waits[thread + 32].value);
    }
    if (!__any_sync(kAll, pull || first || second)) break;
    const bool expired = Now() - begin > exchange.longest_ns;
    if (__any_sync(kAll, expired)) {
      if (thread == 0) Store(exchange.expired, 1);
      break;
    }
    Sleep();
  }
  __syncwarp();
  if (thread == 0 && exchange.collected_count != 0) {
    Store(exchange.collected.flag, exchange.collected.value);
  }
}
