// SPDX-License-Identifier: Apache-2.0
//
// What the copy engines and stream memory operations of two GPUs do, for the design of send/recv
// without SMs (docs/design/sendrecv.md).
//
//   nvcc -O2 -std=c++17 -o copy_engine_facts benchmarks/copy_engine_facts.cu -lcuda
//   ./copy_engine_facts; CUDA_DEVICE_MAX_CONNECTIONS=1 ./copy_engine_facts queues
//
// One process with two GPUs (`queues`, `calls`, `graphs` and `local` do with one); `handles` and
// `processes` are two processes. Each line names what was measured, medians of several rounds.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.cuh"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBuffer = 1024 * kMiB;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

__global__ void Spin(volatile uint32_t* until, unsigned long long most_ns) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  // One thread of a block: were it all, their reads would take the way that copies go.
  if (threadIdx.x == 0) {
    do {
      __nanosleep(20000);
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (*until == 0 && now - start < most_ns);
  }
  __syncthreads();
}

__global__ void Busy(unsigned long long ns) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < ns);
}

__global__ void Touch(uint32_t* where) { *where = 1; }

__global__ void Late(uint32_t* where) { *where = 2; }

struct Gpu {
  int device = 0;
  char* out = nullptr;
  char* in = nullptr;
  std::vector<cudaStream_t> streams;
};

struct Machine {
  int gpus = 0;
  Gpu gpu[2];
  uint32_t* flags = nullptr;   // pinned, seen by both
  CUdeviceptr local[2] = {};   // flags in each GPU's memory

  Machine() {
    CHECK(cudaGetDeviceCount(&gpus));
    gpus = std::min(gpus, 2);
    for (int i = 0; i < gpus; ++i) {
      gpu[i].device = i;
      CHECK(cudaSetDevice(i));
      if (gpus == 2) CHECK(cudaDeviceEnablePeerAccess(1 - i, 0));
      CHECK(cudaMalloc(&gpu[i].out, kBuffer));
      CHECK(cudaMalloc(&gpu[i].in, kBuffer));
      CHECK(cudaMemset(gpu[i].out, i + 1, kBuffer));
      void* flags_here = nullptr;
      CHECK(cudaMalloc(&flags_here, 4096));
      CHECK(cudaMemset(flags_here, 0, 4096));
      local[i] = reinterpret_cast<CUdeviceptr>(flags_here);
      gpu[i].streams.resize(8);
      for (auto& stream : gpu[i].streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      }
      CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaHostAlloc(&flags, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(flags, 0, 4096);
    // A kernel that is first used while a stream waits is loaded when it waits no more.
    flags[0] = 1;
    for (int i = 0; i < gpus; ++i) {
      On(i);
      Spin<<<1, 1>>>(flags, 1);
      Touch<<<1, 1>>>(flags + 1);
      Busy<<<1, 1>>>(1);
      CHECK(cudaDeviceSynchronize());
    }
    std::memset(flags, 0, 4096);
  }

  void On(int device) const { CHECK(cudaSetDevice(device)); }
  void Wait() const {
    for (int i = 0; i < gpus; ++i) {
      On(i);
      CHECK(cudaDeviceSynchronize());
    }
  }
};

CUdeviceptr Pinned(uint32_t* flag) {
  void* device = nullptr;
  CHECK(cudaHostGetDevicePointer(&device, flag, 0));
  return reinterpret_cast<CUdeviceptr>(device);
}

// GB/s of `bytes` in each of `rounds`, all that `enqueue` does.
double Rate(const Machine& machine, double bytes, const std::function<void()>& enqueue) {
  std::vector<double> rates;
  for (int round = 0; round < 7; ++round) {
    machine.Wait();
    const auto start = Clock::now();
    enqueue();
    machine.Wait();
    if (round > 1) rates.push_back(bytes / Seconds(start) / 1e9);
  }
  return Median(rates);
}

// Copies `bytes` from GPU `from` to the other, by `by`, in stream `stream` of that one.
void Copy(const Machine& machine, int from, int by, int stream, size_t offset, size_t bytes) {
  machine.On(by);
  CHECK(cudaMemcpyAsync(machine.gpu[1 - from].in + offset, machine.gpu[from].out + offset, bytes,
                        cudaMemcpyDeviceToDevice, machine.gpu[by].streams[stream]));
}

void Directions(const Machine& machine) {
  for (const size_t mib : {16, 256, 1024}) {
    const size_t bytes = mib * kMiB;
    const auto rate = [&](int times, const std::function<void()>& enqueue) {
      return Rate(machine, static_cast<double>(times) * static_cast<double>(bytes), enqueue);
    };
    const double one = rate(1, [&] { Copy(machine, 0, 0, 0, 0, bytes); });
    const double pull = rate(1, [&] { Copy(machine, 0, 1, 0, 0, bytes); });
    const double push = rate(2, [&] {
      Copy(machine, 0, 0, 0, 0, bytes);
      Copy(machine, 1, 1, 0, 0, bytes);
    });
    const double both_pull = rate(2, [&] {
      Copy(machine, 0, 1, 0, 0, bytes);
      Copy(machine, 1, 0, 0, 0, bytes);
    });
    const double by_one = rate(2, [&] {
      Copy(machine, 0, 0, 0, 0, bytes);
      Copy(machine, 1, 0, 1, 0, bytes);
    });
    std::printf("directions %4zu MiB, GB/s in all: push %.0f, pull %.0f; both ways: each pushes "
                "%.0f, each pulls %.0f, one GPU pushes and pulls %.0f\n",
                mib, one, pull, push, both_pull, by_one);
  }
}

void Streams(const Machine& machine) {
  for (const size_t mib : {4, 64, 1024}) {
    std::printf("streams %4zu MiB, GB/s:", mib);
    for (const int streams : {1, 2, 4, 8}) {
      const size_t part = mib * kMiB / static_cast<size_t>(streams);
      std::printf(" %d: %.0f", streams, Rate(machine, static_cast<double>(mib * kMiB), [&] {
                    for (int i = 0; i < streams; ++i) {
                      Copy(machine, 0, 0, i, part * static_cast<size_t>(i), part);
                    }
                  }));
    }
    std::printf("; in chunks of");
    for (const size_t chunk : {1, 4, 16, 64}) {
      if (chunk > mib) break;
      std::printf(" %zu MiB: %.0f", chunk, Rate(machine, static_cast<double>(mib * kMiB), [&] {
                    for (size_t at = 0; at < mib; at += chunk) {
                      Copy(machine, 0, 0, 0, at * kMiB, chunk * kMiB);
                    }
                  }));
    }
    std::printf("\n");
  }
}

// One message there and one back, `count` times, all enqueued at once: us for one way.
double PingPong(const Machine& machine, CUdeviceptr at0, CUdeviceptr at1, size_t bytes) {
  constexpr uint32_t kCount = 200;
  static uint32_t base = 0;
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    machine.Wait();
    const auto start = Clock::now();
    for (uint32_t i = 1; i <= kCount; ++i) {
      for (int gpu = 0; gpu < 2; ++gpu) {
        machine.On(gpu);
        const cudaStream_t stream = machine.gpu[gpu].streams[0];
        // GPU 0 begins; at0 is what it waits for.
        if (gpu == 1) CHECK(cuStreamWaitValue32(stream, at1, base + i, CU_STREAM_WAIT_VALUE_GEQ));
        if (bytes != 0) Copy(machine, gpu, gpu, 0, 0, bytes);
        const CUdeviceptr theirs = gpu == 0 ? at1 : at0;
        CHECK(cuStreamWriteValue32(stream, theirs, base + i, CU_STREAM_WRITE_VALUE_DEFAULT));
        if (gpu == 0) CHECK(cuStreamWaitValue32(stream, at0, base + i, CU_STREAM_WAIT_VALUE_GEQ));
      }
    }
    machine.Wait();
    if (round > 0) times.push_back(Seconds(start) * 1e6 / (2.0 * kCount));
    base += kCount;
  }
  return Median(times);
}

void Operations(const Machine& machine) {
  machine.On(0);
  const cudaStream_t stream = machine.gpu[0].streams[0];
  constexpr int kCalls = 500;
  const auto per_call = [&](const std::function<void(int)>& call) {
    std::vector<double> times;
    for (int round = 0; round < 5; ++round) {
      CHECK(cudaDeviceSynchronize());
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) call(i);
      times.push_back(Seconds(start) * 1e6 / kCalls);
    }
    CHECK(cudaDeviceSynchronize());
    return Median(times);
  };
  const CUdeviceptr host = Pinned(machine.flags + 64);
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned type = 0;
  unsigned long long id = 0;
  CUdeviceptr base = 0;
  size_t size = 0;
  void* values[] = {&type, &id, &base, &size};
  const auto address = reinterpret_cast<CUdeviceptr>(machine.gpu[0].out);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUstreamCaptureStatus capturing;
  CUcontext context = nullptr;
  const cudaStream_t other = machine.gpu[0].streams[1];
  const std::pair<const char*, std::function<void(int)>> calls[] = {
      {"write value", [&](int) { CHECK(cuStreamWriteValue32(stream, host, 1, 0)); }},
      {"wait value that holds",
       [&](int) { CHECK(cuStreamWaitValue32(stream, host, 1, CU_STREAM_WAIT_VALUE_GEQ)); }},
      {"copy of 1 KiB", [&](int) { Copy(machine, 0, 0, 0, 0, 1024); }},
      {"copy of 1 MiB", [&](int) { Copy(machine, 0, 0, 0, 0, kMiB); }},
      {"record event", [&](int) { CHECK(cuEventRecord(event, stream)); }},
      {"wait for event", [&](int) { CHECK(cuStreamWaitEvent(other, event, 0)); }},
      {"query event", [&](int) { (void)cuEventQuery(event); }},
      {"four attributes of a pointer",
       [&](int) { CHECK(cuPointerGetAttributes(4, which, values, address)); }},
      {"exchange of the capture mode",
       [&](int) { CHECK(cuThreadExchangeStreamCaptureMode(&mode)); }},
      {"is it capturing", [&](int) { CHECK(cuStreamIsCapturing(stream, &capturing)); }},
      {"current context", [&](int) { CHECK(cuCtxGetCurrent(&context)); }},
  };
  for (const auto& [name, call] : calls) {
    std::printf("call %-30s %.3f us of CPU\n", name, per_call(call));
  }
  CHECK(cudaEventDestroy(event));
  int before = 0;
  int since = 0;
  CHECK(cuDeviceGetAttribute(&before, static_cast<CUdevice_attribute>(92), 0));
  CHECK(cuDeviceGetAttribute(&since, static_cast<CUdevice_attribute>(122), 0));
  std::printf("stream memory operations by attribute 92: %d, by 122: %d\n", before, since);
  for (const size_t bytes : {size_t{0}, size_t{1024}, 64 * kMiB / 1024, kMiB, 4 * kMiB}) {
    // A flag is written by the other GPU: to its own memory for the reader, or to the host.
    const double pinned = PingPong(machine, Pinned(machine.flags), Pinned(machine.flags + 32), bytes);
    const double reader = PingPong(machine, machine.local[0], machine.local[1] + 128, bytes);
    const double writer = PingPong(machine, machine.local[1] + 256, machine.local[0] + 384, bytes);
    std::printf("one way with %7zu B, us: flags in pinned memory %.2f, at the reader %.2f, at the "
                "writer %.2f\n", bytes, pinned, reader, writer);
  }
}

bool DoneIn(cudaStream_t stream, double seconds) {
  const auto start = Clock::now();
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (Seconds(start) > seconds) return false;
  }
  return true;
}

// Streams of one GPU, all new: of the highest priority there is, or of the usual one.
std::vector<cudaStream_t> NewStreams(size_t count, bool first) {
  int lowest = 0;
  int highest = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  std::vector<cudaStream_t> streams(count);
  for (auto& stream : streams) {
    CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, first ? highest : lowest));
  }
  return streams;
}

// A kernel fills every SM and spins: what goes on?
void FullSms(const Machine& machine) {
  for (const bool first : {false, true}) {
    machine.On(0);
    const std::vector<cudaStream_t> streams = NewStreams(12, first);
    int sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    Busy<<<sms * 2, 1024, 0, machine.gpu[0].streams[7]>>>(2'000'000'000ULL);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::printf("every SM spins, streams of %s priority:", first ? "the highest" : "no");
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const CUdeviceptr flag = Pinned(machine.flags + 160);
    const auto copy = [&](size_t to, size_t from, cudaStream_t stream) {
      CHECK(cudaMemcpyAsync(machine.gpu[to].in, machine.gpu[from].out, 16 * kMiB,
                            cudaMemcpyDeviceToDevice, stream));
    };
    const std::pair<const char*, std::function<void(cudaStream_t)>> steps[] = {
        {"push", [&](cudaStream_t stream) { copy(1, 0, stream); }},
        {"pull", [&](cudaStream_t stream) { copy(0, 1, stream); }},
        {"write", [&](cudaStream_t stream) { CHECK(cuStreamWriteValue32(stream, flag, 1, 0)); }},
        {"wait that holds",
         [&](cudaStream_t stream) {
           CHECK(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
         }},
        {"wait, push, write",
         [&](cudaStream_t stream) {
           CHECK(cuStreamWaitValue32(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
           copy(1, 0, stream);
           CHECK(cuStreamWriteValue32(stream, flag, 2, 0));
         }},
        {"event", [&](cudaStream_t stream) { CHECK(cudaEventRecord(event, stream)); }},
        {"wait for it", [&](cudaStream_t stream) { CHECK(cudaStreamWaitEvent(stream, event, 0)); }},
        {"copy within the GPU", [&](cudaStream_t stream) { copy(0, 0, stream); }},
    };
    size_t next = 0;
    for (const auto& [name, step] : steps) {
      step(streams[next]);
      std::printf(" %s: %s,", name, DoneIn(streams[next], 0.2) ? "done" : "NOT done");
      ++next;
    }
    const bool spinning = cudaStreamQuery(machine.gpu[0].streams[7]) == cudaErrorNotReady;
    std::printf(" still spinning: %s\n", spinning ? "yes" : "no");
    machine.Wait();
    CHECK(cudaEventDestroy(event));
  }
}

// One GPU pushes in one stream and pulls in another: side by side, or one after the other? `gated`:
// behind a wait for a value, which is written when both are enqueued.
void Pairs(const Machine& machine) {
  constexpr size_t kBytes = 256 * kMiB;
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  uint32_t* const go = machine.flags + 256;
  for (const bool first : {false, true}) {
    machine.On(0);
    const std::vector<cudaStream_t> streams = NewStreams(12, first);
    for (const bool gated : {false, true}) {
      std::printf("pairs (CUDA_DEVICE_MAX_CONNECTIONS=%s), streams of %s priority, %s, GB/s in all:",
                  connections != nullptr ? connections : "unset", first ? "the highest" : "no",
                  gated ? "behind waits" : "at once");
      for (size_t other = 1; other < streams.size(); ++other) {
        std::vector<double> rates;
        for (int round = 0; round < 4; ++round) {
          machine.Wait();
          machine.On(0);
          *go = 0;
          auto start = Clock::now();
          for (const size_t which : {size_t{0}, other}) {
            if (gated) {
              CHECK(cuStreamWaitValue32(streams[which], Pinned(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
            }
            const int from = which == 0 ? 0 : 1;
            CHECK(cudaMemcpyAsync(machine.gpu[1 - from].in, machine.gpu[from].out, kBytes,
                                  cudaMemcpyDeviceToDevice, streams[which]));
          }
          if (gated) start = Clock::now();
          *static_cast<volatile uint32_t*>(go) = 1;
          machine.Wait();
          if (round > 0) rates.push_back(2.0 * kBytes / Seconds(start) / 1e9);
        }
        std::printf(" %.0f", Median(rates));
      }
      std::printf("\n");
    }
  }
}

// Copies that stand behind waits in some streams: what of others goes on?
void Blocked(const Machine& machine) {
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  machine.On(0);
  uint32_t* const go = machine.flags + 256;
  uint32_t* const touched = machine.flags + 288;
  for (const bool first : {false, true}) {
    const std::vector<cudaStream_t> waiting = NewStreams(48, first);
    const std::vector<cudaStream_t> same = NewStreams(48, first);
    const std::vector<cudaStream_t> usual = NewStreams(16, false);
    for (const size_t blocked : {1, 2, 4, 8, 16, 32, 48}) {
      *go = 0;
      for (size_t i = 0; i < blocked; ++i) {
        CHECK(cuStreamWaitValue32(waiting[i], Pinned(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cudaMemcpyAsync(machine.gpu[1].in, machine.gpu[0].out, 4096, cudaMemcpyDeviceToDevice,
                              waiting[i]));
      }
      int pushes = 0;
      int pulls = 0;
      int local = 0;
      int kernels = 0;
      for (size_t i = 0; i < 16; ++i) {
        CHECK(cudaMemcpyAsync(machine.gpu[1].in + kMiB, machine.gpu[0].out, 4096,
                              cudaMemcpyDeviceToDevice, same[3 * i]));
        pushes += DoneIn(same[3 * i], 0.01) ? 1 : 0;
        CHECK(cudaMemcpyAsync(machine.gpu[0].in + kMiB, machine.gpu[1].out, 4096,
                              cudaMemcpyDeviceToDevice, same[3 * i + 1]));
        pulls += DoneIn(same[3 * i + 1], 0.01) ? 1 : 0;
        CHECK(cudaMemcpyAsync(machine.gpu[0].in + 2 * kMiB, machine.gpu[0].out, 4096,
                              cudaMemcpyDeviceToDevice, same[3 * i + 2]));
        local += DoneIn(same[3 * i + 2], 0.01) ? 1 : 0;
        Touch<<<1, 1, 0, usual[i]>>>(reinterpret_cast<uint32_t*>(Pinned(touched)));
        kernels += DoneIn(usual[i], 0.01) ? 1 : 0;
      }
      *static_cast<volatile uint32_t*>(go) = 1;
      machine.Wait();
      machine.On(0);
      std::printf("blocked (CUDA_DEVICE_MAX_CONNECTIONS=%s), streams of %s priority: %2zu wait with a "
                  "copy behind: of 16 each %d pushes, %d pulls, %d local copies of their kind and %d "
                  "kernels in usual streams went on\n",
                  connections != nullptr ? connections : "unset", first ? "the highest" : "no",
                  blocked, pushes, pulls, local, kernels);
    }
  }
}

// Streams that wait: what of the others goes on?
void Queues(const Machine& machine) {
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  machine.On(0);
  std::vector<cudaStream_t> waiting(48);
  std::vector<cudaStream_t> working(48);
  for (auto& stream : waiting) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (auto& stream : working) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  uint32_t* const go = machine.flags + 256;
  uint32_t* const touched = machine.flags + 288;
  for (const size_t blocked : {1, 2, 4, 8, 16, 32}) {
    *go = 0;
    for (size_t i = 0; i < blocked; ++i) {
      CHECK(cuStreamWaitValue32(waiting[i], Pinned(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
    }
    int kernels = 0;
    int copies = 0;
    for (size_t i = 0; i < working.size(); i += 3) {
      Touch<<<1, 1, 0, working[i]>>>(reinterpret_cast<uint32_t*>(Pinned(touched)));
      kernels += DoneIn(working[i], 0.02) ? 1 : 0;
      CHECK(cudaMemcpyAsync(machine.gpu[machine.gpus - 1].in, machine.gpu[0].out, 4096, cudaMemcpyDeviceToDevice,
                            working[i + 1]));
      copies += DoneIn(working[i + 1], 0.02) ? 1 : 0;
    }
    *go = 1;
    machine.Wait();
    std::printf("queues (CUDA_DEVICE_MAX_CONNECTIONS=%s): %2zu streams wait: %d of 16 kernels and %d "
                "of 16 copies in other streams went on\n",
                connections != nullptr ? connections : "unset", blocked, kernels, copies);
  }
}

// While a stream waits: which calls wait with it?
void Calls(const Machine& machine) {
  machine.On(0);
  uint32_t* const go = machine.flags + 320;
  const auto took = [&](const char* name, const std::function<void()>& call) {
    *go = 0;
    CHECK(cuStreamWaitValue32(machine.gpu[0].streams[0], Pinned(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      *static_cast<volatile uint32_t*>(go) = 1;
    });
    const auto start = Clock::now();
    call();
    const double ms = Seconds(start) * 1e3;
    release.join();
    CHECK(cudaDeviceSynchronize());
    std::printf("while a stream waits 500 ms: %-22s %8.3f ms%s\n", name, ms,
                ms > 400 ? "  WAITS WITH IT" : "");
  };
  void* some = nullptr;
  void* other = nullptr;
  CHECK(cudaMalloc(&other, 64 * kMiB));
  took("cudaMalloc", [&] { CHECK(cudaMalloc(&some, 64 * kMiB)); });
  took("cudaFree", [&] { CHECK(cudaFree(some)); });
  took("cudaIpcGetMemHandle", [&] {
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, other));
  });
  took("cudaHostAlloc", [&] { CHECK(cudaHostAlloc(&some, kMiB, cudaHostAllocDefault)); });
  took("cudaFreeHost", [&] { CHECK(cudaFreeHost(some)); });
  cudaStream_t stream = nullptr;
  took("cudaStreamCreate", [&] { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); });
  took("cudaStreamDestroy", [&] { CHECK(cudaStreamDestroy(stream)); });
  cudaEvent_t event = nullptr;
  took("cudaEventCreate", [&] { CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); });
  took("cudaMallocAsync", [&] { CHECK(cudaMallocAsync(&some, 64 * kMiB, machine.gpu[0].streams[1])); });
  took("cudaFreeAsync", [&] { CHECK(cudaFreeAsync(some, machine.gpu[0].streams[1])); });
  void* const lane = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(lane == MAP_FAILED ? 1 : 0);
  took("cudaHostRegister", [&] { CHECK(cudaHostRegister(lane, kMiB, cudaHostRegisterPortable)); });
  took("cudaHostUnregister", [&] { CHECK(cudaHostUnregister(lane)); });
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 0;
  CUmemAccessDesc access = {};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  constexpr size_t kChunk = 20 * kMiB;
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle chunk = 0;
  CUmemGenericAllocationHandle imported = 0;
  int file = -1;
  CHECK(cuMemAddressReserve(&at, kChunk, 0, 0, 0));
  took("cuMemCreate", [&] { CHECK(cuMemCreate(&chunk, kChunk, &prop, 0)); });
  took("cuMemExportToShareable", [&] {
    CHECK(cuMemExportToShareableHandle(&file, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  });
  took("cuMemImportFromShareab", [&] {
    void* const as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(file));
    CHECK(cuMemImportFromShareableHandle(&imported, as_pointer,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  });
  took("cuMemMap", [&] { CHECK(cuMemMap(at, kChunk, 0, imported, 0)); });
  took("cuMemSetAccess", [&] { CHECK(cuMemSetAccess(at, kChunk, &access, 1)); });
  took("cuMemRetainAllocation", [&] {
    CUmemGenericAllocationHandle retained = 0;
    CHECK(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(at)));
    CHECK(cuMemRelease(retained));
  });
  took("cuMemUnmap", [&] { CHECK(cuMemUnmap(at, kChunk)); });
  took("cuMemRelease, twice", [&] {
    CHECK(cuMemRelease(chunk));
    CHECK(cuMemRelease(imported));
  });
  took("cuPointerGetAttributes", [&] {
    unsigned long long id = 0;
    CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                reinterpret_cast<CUdeviceptr>(other)));
  });
  CHECK(close(file));
  CHECK(munmap(lane, kMiB));
  took("first use of a kernel", [&] { Late<<<1, 1, 0, machine.gpu[0].streams[2]>>>(machine.flags + 352); });
}

// What it costs to let another process see an allocation.
void Handles() {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  const pid_t child = fork();
  const int end = ends[child == 0 ? 1 : 0];
  const auto give = [&](const void* data, size_t bytes) { CHECK(write(end, data, bytes) == static_cast<ssize_t>(bytes) ? 0 : 1); };
  const auto take = [&](void* data, size_t bytes) { CHECK(recv(end, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes) ? 0 : 1); };
  CHECK(cudaSetDevice(child == 0 ? 1 : 0));
  CHECK(cudaFree(nullptr));
  cudaStream_t stream = nullptr;
  uint32_t* go = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaHostAlloc(&go, 4096, cudaHostAllocPortable | cudaHostAllocMapped));
  for (const size_t mib : {2, 20, 256, 2048}) {
    if (child == 0) {
      cudaIpcMemHandle_t handle;
      take(&handle, sizeof(handle));
      // A stream waits meanwhile, and is let go when all is done; or after a second.
      *go = 0;
      CHECK(cuStreamWaitValue32(stream, Pinned(go), 1, CU_STREAM_WAIT_VALUE_GEQ));
      std::thread release([&] {
        for (int i = 0; i < 1000 && *static_cast<volatile uint32_t*>(go) == 0; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        *static_cast<volatile uint32_t*>(go) = 1;
      });
      const auto start = Clock::now();
      void* mapped = nullptr;
      CHECK(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess));
      const double opened = Seconds(start) * 1e3;
      const auto again = Clock::now();
      CHECK(cudaIpcCloseMemHandle(mapped));
      const double times[2] = {opened, Seconds(again) * 1e3};
      *go = 1;
      release.join();
      give(times, sizeof(times));
      continue;
    }
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, mib * kMiB));
    const auto start = Clock::now();
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, memory));
    const double exported = Seconds(start) * 1e3;
    give(&handle, sizeof(handle));
    double times[2];
    take(times, sizeof(times));
    std::printf("handles %4zu MiB, ms: cudaIpcGetMemHandle %.3f, while a stream waits: open %.3f, close %.3f\n", mib, exported,
                times[0], times[1]);
    CHECK(cudaFree(memory));
  }
  if (child == 0) std::exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::printf("handles: the other process failed\n");
}

// Two processes, a GPU each, that see each other's memory as ranks of NCCL do.
struct Meeting {
  uint32_t flags[1024];
  std::atomic<int> come;
  cudaIpcMemHandle_t in[2];
  cudaIpcMemHandle_t out[2];
};

class Party {
 public:
  explicit Party(Meeting* meeting) : meeting_(*meeting) {
    rank_ = fork() == 0 ? 1 : 0;
    CHECK(cudaSetDevice(rank_));
    CHECK(cudaHostRegister(meeting, sizeof(Meeting), cudaHostRegisterMapped));
    CHECK(cudaMalloc(&in_, kBytes));
    CHECK(cudaMalloc(&out_, kBytes));
    CHECK(cudaMemset(in_, 1, kBytes));
    CHECK(cudaMemset(out_, 2, kBytes));
    CHECK(cudaIpcGetMemHandle(&meeting_.in[rank_], in_));
    CHECK(cudaIpcGetMemHandle(&meeting_.out[rank_], out_));
    Meet();
    CHECK(cudaIpcOpenMemHandle(&their_in_, meeting_.in[1 - rank_], cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenMemHandle(&their_out_, meeting_.out[1 - rank_], cudaIpcMemLazyEnablePeerAccess));
    streams_ = NewStreams(6, false);
    CHECK(cudaMallocHost(&go_, 64));
    *go_ = 1;
    Spin<<<1, 1>>>(go_, 1);
    Busy<<<1, 1>>>(1);
    CHECK(cudaDeviceSynchronize());
    Meet();
  }

  void Run() {
    const auto push = [&](size_t stream) { Copy(their_in_, out_, streams_[stream]); };
    const auto pull = [&](size_t stream) { Copy(in_, their_out_, streams_[stream]); };
    Time("each pushes", true, [&] { push(0); });
    Time("each pulls", true, [&] { pull(0); });
    Time("one pushes and pulls in two streams", false, [&] {
      push(0);
      pull(1);
    });
    Time("one pushes and pulls in four streams, halves", false, [&] {
      for (size_t half = 0; half < 2; ++half) {
        const size_t at = half * kBytes / 2;
        Copy(static_cast<char*>(their_in_) + at, out_ + at, streams_[half], kBytes / 2);
        Copy(in_ + at, static_cast<char*>(their_out_) + at, streams_[2 + half], kBytes / 2);
      }
    });
    Time("one pushes and pulls in chunks of 4 MiB, two streams", false, [&] {
      for (size_t at = 0; at < kBytes; at += 4 * kMiB) {
        Copy(static_cast<char*>(their_in_) + at, out_ + at, streams_[0], 4 * kMiB);
        Copy(in_ + at, static_cast<char*>(their_out_) + at, streams_[1], 4 * kMiB);
      }
    });
    AllFull();
    CHECK(cudaDeviceSynchronize());
    Meet();
    if (rank_ == 1) std::_Exit(0);
    wait(nullptr);
  }

 private:
  static constexpr size_t kBytes = 256 * kMiB;

  void Meet() {
    ++turn_;
    ++meeting_.come;
    while (meeting_.come < 2 * turn_) usleep(50);
  }
  static void Copy(void* to, const void* from, cudaStream_t stream, size_t bytes = kBytes) {
    CHECK(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                            stream));
  }
  CUdeviceptr Flag(int which, int rank) {
    return reinterpret_cast<CUdeviceptr>(&meeting_.flags[which * 64 + rank * 32]);
  }

  void Time(const char* name, bool both, const std::function<void()>& enqueue) {
    std::vector<double> rates;
    for (int round = 0; round < 6; ++round) {
      Meet();
      const auto start = Clock::now();
      if (both || rank_ == 0) enqueue();
      CHECK(cudaDeviceSynchronize());
      if (round > 1) rates.push_back(2.0 * kBytes / Seconds(start) / 1e9);
      Meet();
    }
    if (rank_ == 0) std::printf("two processes: %s: %.0f GB/s in all\n", name, Median(rates));
  }

  using Marks = std::function<void(const char*, cudaStream_t)>;

  // While a kernel keeps every SM of both GPUs: which operations end, and when? `polls`: it looks at
  // the host's memory meanwhile.
  void Full(const char* name, const std::function<void(const Marks&)>& enqueue, bool polls = false) {
    int sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, rank_));
    *go_ = 0;
    Meet();
    if (polls) {
      Spin<<<sms * 2, 1024, 0, streams_[5]>>>(go_, 3'000'000'000ULL);
    } else {
      Busy<<<sms * 2, 1024, 0, streams_[5]>>>(400'000'000ULL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Meet();
    ++value_;
    std::vector<std::pair<const char*, cudaEvent_t>> events;
    enqueue([&](const char* label, cudaStream_t stream) {
      events.emplace_back(label, nullptr);
      CHECK(cudaEventCreateWithFlags(&events.back().second, cudaEventDisableTiming));
      CHECK(cudaEventRecord(events.back().second, stream));
    });
    const auto start = Clock::now();
    std::string done;
    for (const auto& [label, event] : events) {
      while (cudaEventQuery(event) == cudaErrorNotReady && Seconds(start) < 0.3) usleep(20);
      char text[64];
      std::snprintf(text, sizeof(text), "%.1f ms", Seconds(start) * 1e3);
      done += std::string(", ") + label + " " +
              (cudaEventQuery(event) == cudaSuccess ? text : "NOT DONE");
    }
    const bool spinning = cudaStreamQuery(streams_[5]) == cudaErrorNotReady;
    std::printf("every SM spins%s, rank %d, %s%s\n", spinning ? "" : " (NOT ANY MORE)", rank_, name,
                done.c_str());
    *static_cast<volatile uint32_t*>(go_) = 1;
    CHECK(cudaDeviceSynchronize());
    Meet();
  }

  void WriteFlag(int which, cudaStream_t stream) {
    CHECK(cuStreamWriteValue32(stream, Flag(which, rank_), value_, 0));
  }
  void WaitFlag(int which, cudaStream_t stream) {
    CHECK(cuStreamWaitValue32(stream, Flag(which, 1 - rank_), value_, CU_STREAM_WAIT_VALUE_GEQ));
  }

  void AllFull() {
    const auto push = [&](cudaStream_t stream) { Copy(their_in_, out_, stream); };
    const auto pull = [&](cudaStream_t stream) { Copy(in_, their_out_, stream); };
    const cudaStream_t own = streams_[0];
    const auto exchange = [&](const Marks& mark, bool late) {
      if (late && rank_ == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      WriteFlag(0, own);
      mark("write", own);
      WaitFlag(0, own);
      mark("wait", own);
      push(own);
      mark("push", own);
      WriteFlag(1, own);
      WaitFlag(1, own);
      mark("all", own);
    };
    Full("in one stream", [&](const Marks& mark) { exchange(mark, false); });
    Full("in one stream, rank 1 late", [&](const Marks& mark) { exchange(mark, true); });
    const auto several = [&](const Marks& mark) {
      for (int i = 0; i < 5; ++i) {
        if (i > 0) ++value_;
        exchange(mark, false);
      }
    };
    Full("five in one stream", several);
    Full("five in one stream, the kernel polls the host's memory", several, true);
    Full("pull", [&](const Marks& mark) {
      pull(own);
      mark("pull", own);
    });
    Full("pull behind a wait", [&](const Marks& mark) {
      WriteFlag(0, own);
      WaitFlag(0, own);
      mark("wait", own);
      pull(own);
      mark("pull", own);
      WriteFlag(1, own);
      mark("write", own);
    });
    const auto forked = [&](const Marks& mark, cudaStream_t other, bool pulls, bool flags) {
      cudaEvent_t fork = nullptr;
      cudaEvent_t join = nullptr;
      CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
      CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
      CHECK(cudaEventRecord(fork, own));
      CHECK(cudaStreamWaitEvent(other, fork, 0));
      mark("forked", other);
      if (flags) {
        WriteFlag(pulls ? 0 : 2, own);
        WaitFlag(pulls ? 0 : 2, other);
        mark("wait", other);
      }
      pulls ? pull(other) : push(other);
      mark(pulls ? "pull" : "push", other);
      if (flags) {
        WriteFlag(pulls ? 1 : 3, other);
        mark("write", other);
      }
      CHECK(cudaEventRecord(join, other));
      CHECK(cudaStreamWaitEvent(own, join, 0));
      mark("joined", own);
    };
    Full("push, forked", [&](const Marks& mark) { forked(mark, streams_[1], false, false); });
    Full("pull, forked", [&](const Marks& mark) { forked(mark, streams_[1], true, false); });
    Full("push, forked, flags", [&](const Marks& mark) { forked(mark, streams_[1], false, true); });
    Full("pull, forked, flags", [&](const Marks& mark) { forked(mark, streams_[1], true, true); });
    const auto both = [&](const Marks& mark, cudaStream_t one, cudaStream_t other) {
      forked(mark, one, true, true);
      forked(mark, other, false, true);
    };
    Full("pull and push, forked", [&](const Marks& mark) { both(mark, streams_[1], streams_[2]); });
    Full("pull and push, forked, new streams", [&](const Marks& mark) {
      const std::vector<cudaStream_t> made = NewStreams(2, false);
      both(mark, made[0], made[1]);
    });
  }

  Meeting& meeting_;
  int rank_ = 0;
  int turn_ = 0;
  uint32_t value_ = 0;
  char* in_ = nullptr;
  char* out_ = nullptr;
  void* their_in_ = nullptr;
  void* their_out_ = nullptr;
  uint32_t* go_ = nullptr;
  std::vector<cudaStream_t> streams_;
};

void Processes() {
  void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory == MAP_FAILED ? 1 : 0);
  Party(new (memory) Meeting()).Run();
}

// How long a push of 2 MiB takes while pushes of 256 MiB go the same way, at most four of them
// enqueued, and what pieces of these change: in one stream; in one stream, each piece behind a wait
// for a flag that the one before writes; in two alternating streams, each piece behind an event of the one
// before, so that neither stream has always something that could run.
void Fairness(const Machine& machine) {
  constexpr size_t kLarge = 256 * kMiB;
  constexpr size_t kPushes = 300;
  constexpr size_t kDeep = 4;
  enum How { kOneStream, kFlags, kTwoStreams };
  machine.On(0);
  uint32_t* const flag = machine.flags + 256;
  uint32_t value = 0;
  *flag = 0;
  cudaEvent_t behind[2];
  cudaEvent_t pushed[kDeep];
  for (auto& event : behind) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (auto& event : pushed) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const cudaStream_t ahead = NewStreams(1, true)[0];
  const auto push = [&](How how, size_t mib) {
    size_t turn = 0;
    for (size_t at = 0; at < kLarge; at += mib * kMiB, ++turn) {
      const int which = how == kTwoStreams ? static_cast<int>(turn % 2) : 0;
      const cudaStream_t stream = machine.gpu[0].streams[which];
      if (how == kTwoStreams) CHECK(cudaStreamWaitEvent(stream, behind[1 - which], 0));
      if (how == kFlags && value != 0) {
        CHECK(cuStreamWaitValue32(stream, Pinned(flag), value, CU_STREAM_WAIT_VALUE_GEQ));
      }
      Copy(machine, 0, 0, which, at, mib * kMiB);
      if (how == kTwoStreams) CHECK(cudaEventRecord(behind[which], stream));
      if (how == kFlags) CHECK(cuStreamWriteValue32(stream, Pinned(flag), ++value, 0));
    }
    return machine.gpu[0].streams[how == kTwoStreams ? (turn - 1) % 2 : 0];
  };
  struct Case {
    How how;
    const char* name;
    std::vector<size_t> mib;
    bool first;  // the small one in a stream of the highest priority
  };
  for (const auto& [how, name, sizes, first] :
       {Case{kOneStream, "one stream", {256, 64, 16, 4}, false},
        Case{kOneStream, "one stream, small first", {256, 16}, true},
        Case{kFlags, "flags", {64, 16}, false},
        Case{kTwoStreams, "two streams", {64, 32, 16, 8, 4}, false},
        Case{kTwoStreams, "two streams, small first", {16}, true}}) {
    for (const size_t mib : sizes) {
      machine.Wait();
      machine.On(0);
      std::vector<double> times;
      std::atomic<bool> over = false;
      double seconds = 0;
      const auto start = Clock::now();
      std::thread pushes([&, how = how, mib = mib] {
        machine.On(0);
        for (size_t i = 0; i < kPushes; ++i) {
          if (i >= kDeep) CHECK(cudaEventSynchronize(pushed[i % kDeep]));
          CHECK(cudaEventRecord(pushed[i % kDeep], push(how, mib)));
        }
        over = true;
        machine.Wait();
        seconds = Seconds(start);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      while (!over) {
        const auto began = Clock::now();
        const cudaStream_t stream = first ? ahead : machine.gpu[0].streams[4];
        CHECK(cudaMemcpyPeerAsync(machine.gpu[1].in + kLarge, 1, machine.gpu[0].out + kLarge, 0,
                                  2 * kMiB, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (!over) times.push_back(Seconds(began) * 1e6);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      pushes.join();
      if (times.empty()) times.push_back(0);
      std::sort(times.begin(), times.end());
      std::printf("fairness, %s, pieces of %3zu MiB: %.0f GB/s; beside, 2 MiB in us: median %.1f, "
                  "nine of ten %.1f, largest %.1f, n %zu\n",
                  name, mib, static_cast<double>(kPushes * kLarge) / seconds / 1e9,
                  times[times.size() / 2], times[times.size() * 9 / 10], times.back(), times.size());
    }
  }
  CHECK(cudaStreamDestroy(ahead));
  for (auto& event : behind) CHECK(cudaEventDestroy(event));
  for (auto& event : pushed) CHECK(cudaEventDestroy(event));
}

// A copy within one GPU: as CUDA does it, and with the wish that it leaves the SMs alone.
void Local(const Machine& machine) {
  machine.On(0);
  const auto at = [](char* address) { return reinterpret_cast<CUdeviceptr>(address); };
  const auto copy = [&](size_t bytes, cudaStream_t stream) {
    CHECK(cuMemcpyDtoDAsync(at(machine.gpu[0].in), at(machine.gpu[0].out), bytes, stream));
  };
  const auto beside = [&](size_t bytes, cudaStream_t stream) {
    CUdeviceptr to = at(machine.gpu[0].in);
    CUdeviceptr from = at(machine.gpu[0].out);
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    size_t first = 0;
    CHECK(cuMemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream));
  };
  using Way = std::function<void(size_t, cudaStream_t)>;
  for (const auto& [name, way] : {std::pair<const char*, Way>{"plain", copy}, {"beside", beside}}) {
    std::printf("local, %s, us:", name);
    for (const size_t mib : {1, 4, 16, 64, 256}) {
      const cudaStream_t stream = machine.gpu[0].streams[0];
      const double rate = Rate(machine, 1.0, [&, go = &way] { (*go)(mib * kMiB, stream); });
      std::printf(" %zu MiB %.1f,", mib, 1e-3 / rate);
    }
    int sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    Busy<<<sms * 2, 1024, 0, machine.gpu[0].streams[7]>>>(300'000'000ULL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto start = Clock::now();
    way(64 * kMiB, machine.gpu[0].streams[1]);
    const bool done = DoneIn(machine.gpu[0].streams[1], 0.2);
    std::printf(" 64 MiB while a kernel keeps every SM: %s after %.1f ms\n", done ? "done" : "NOT done",
                Seconds(start) * 1e3);
    machine.Wait();
  }
}

// Whether stream memory operations and copies can be captured, and what a graph of them costs: two
// graphs that exchange alternately by flags that the waiting side resets.
void Graphs(const Machine& machine) {
  constexpr int kReplays = 500;
  const int other = machine.gpus - 1;
  const CUdeviceptr flags = Pinned(machine.flags + 512);
  std::memset(machine.flags + 512, 0, 512);
  const auto flag = [&](int which) { return flags + static_cast<size_t>(which) * 128; };
  const auto take = [&](cudaStream_t stream, int which) {
    CHECK(cuStreamWaitValue32(stream, flag(which), 1, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(cuStreamWriteValue32(stream, flag(which), 0, 0));
  };
  const auto give = [&](cudaStream_t stream, int which) {
    CHECK(cuStreamWriteValue32(stream, flag(which), 1, 0));
  };
  for (const size_t bytes : {size_t{4096}, 4 * kMiB, 64 * kMiB}) {
    const auto receive = [&](cudaStream_t stream) {
      give(stream, 0);
      take(stream, 1);
    };
    const auto send = [&](cudaStream_t stream) {
      take(stream, 0);
      CHECK(cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(machine.gpu[other].in),
                              reinterpret_cast<CUdeviceptr>(machine.gpu[0].out), bytes, stream));
      give(stream, 1);
    };
    const auto times = [&](const std::function<void()>& exchange) {
      std::vector<double> found;
      for (int round = 0; round < 5; ++round) {
        machine.Wait();
        const auto start = Clock::now();
        for (int i = 0; i < kReplays; ++i) exchange();
        machine.Wait();
        found.push_back(Seconds(start) * 1e6 / kReplays);
      }
      return Median(found);
    };
    const cudaStream_t streams[2] = {machine.gpu[0].streams[0], machine.gpu[other].streams[1]};
    const double direct = times([&] {
      machine.On(other);
      receive(streams[1]);
      machine.On(0);
      send(streams[0]);
    });
    cudaGraphExec_t made[2] = {};
    for (int side = 0; side < 2; ++side) {
      machine.On(side == 0 ? 0 : other);
      CHECK(cudaStreamBeginCapture(streams[side], cudaStreamCaptureModeThreadLocal));
      side == 0 ? send(streams[side]) : receive(streams[side]);
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(streams[side], &graph));
      size_t nodes = 0;
      CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
      std::printf("graphs %7zu KiB, %s: %zu nodes\n", bytes / 1024, side == 0 ? "send" : "receive",
                  nodes);
      CHECK(cudaGraphInstantiate(&made[side], graph, 0));
    }
    double launch = 0;
    const double replayed = times([&] {
      machine.On(other);
      CHECK(cudaGraphLaunch(made[1], streams[1]));
      machine.On(0);
      const auto start = Clock::now();
      CHECK(cudaGraphLaunch(made[0], streams[0]));
      launch += Seconds(start) * 1e6 / (5 * kReplays);
    });
    std::printf("graphs %7zu KiB, one way%s, us: enqueued %.2f, graphs %.2f (a launch %.2f of CPU)\n",
                bytes / 1024, machine.gpus < 2 ? " within one GPU" : "", direct, replayed, launch);
    for (cudaGraphExec_t each : made) CHECK(cudaGraphExecDestroy(each));
  }
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = count > 1 ? words[1] : "all";
  if (what == "processes") {
    Processes();
    return 0;
  }
  if (what == "handles") {
    Handles();
    return 0;
  }
  CHECK(cuInit(0));
  const Machine machine;
  if (machine.gpus < 2 && what != "queues" && what != "calls" && what != "graphs" &&
      what != "local") {
    std::fprintf(stderr, "two GPUs are needed for: %s\n", what.c_str());
    return 1;
  }
  if (what == "all" || what == "directions") Directions(machine);
  if (what == "all" || what == "streams") Streams(machine);
  if (what == "all" || what == "operations") Operations(machine);
  if (what == "all" || what == "sms") FullSms(machine);
  if (what == "all" || what == "pairs") Pairs(machine);
  if (what == "all" || what == "queues") Queues(machine);
  if (what == "all" || what == "blocked") Blocked(machine);
  if (what == "all" || what == "calls") Calls(machine);
  if (what == "all" || what == "graphs") Graphs(machine);
  if (what == "all" || what == "local") Local(machine);
  if (what == "all" || what == "fairness") Fairness(machine);
  return 0;
}
