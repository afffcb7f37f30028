// SPDX-License-Identifier: Apache-2.0
//
// What the copy engines and stream memory operations of two GPUs do, for the design of send/recv
// without SMs (docs/design/sendrecv.md).
//
//   nvcc -O2 -std=c++17 -o copy_engine_facts benchmarks/copy_engine_facts.cu -lcuda
//   ./copy_engine_facts; CUDA_DEVICE_MAX_CONNECTIONS=1 ./copy_engine_facts queues
//
// One process with two GPUs (`queues` and `calls` do with one); `handles` is two processes. Each line
// names what was measured, medians of several rounds.
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                 \
  do {                                                                              \
    const auto result = (call);                                                     \
    if (static_cast<int>(result) != 0) {                                            \
      std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call,      \
                   static_cast<int>(result));                                       \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBuffer = 1024 * kMiB;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

__global__ void Spin(volatile uint32_t* until, unsigned long long most_ns) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*until == 0 && now - start < most_ns);
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
  std::printf("calls, us of CPU: write value %.2f, wait value that holds %.2f, copy of 1 KiB %.2f, "
              "of 1 MiB %.2f\n",
              per_call([&](int) { CHECK(cuStreamWriteValue32(stream, host, 1, 0)); }),
              per_call([&](int) {
                CHECK(cuStreamWaitValue32(stream, host, 1, CU_STREAM_WAIT_VALUE_GEQ));
              }),
              per_call([&](int) { Copy(machine, 0, 0, 0, 0, 1024); }),
              per_call([&](int) { Copy(machine, 0, 0, 0, 0, kMiB); }));
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

// A kernel fills every SM and spins: does an exchange go on?
void FullSms(const Machine& machine) {
  uint32_t* const stop = machine.flags + 128;
  *stop = 0;
  for (int i = 0; i < 2; ++i) {
    machine.On(i);
    int sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, i));
    Spin<<<sms * 2, 1024, 0, machine.gpu[i].streams[7]>>>(stop, 4'000'000'000ULL);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i) {
    Copy(machine, i, i, 0, 0, 256 * kMiB);
    CHECK(cuStreamWriteValue32(machine.gpu[i].streams[0], Pinned(machine.flags + 160 + 32 * i), 1, 0));
  }
  const bool done = DoneIn(machine.gpu[0].streams[0], 2) && DoneIn(machine.gpu[1].streams[0], 2);
  const double took = Seconds(start) * 1e3;
  // The same inside one GPU, as a staged path needs it.
  machine.On(0);
  CHECK(cudaMemcpyAsync(machine.gpu[0].in, machine.gpu[0].out, 256 * kMiB, cudaMemcpyDeviceToDevice,
                        machine.gpu[0].streams[1]));
  const bool local = DoneIn(machine.gpu[0].streams[1], 1);
  const bool spinning = cudaStreamQuery(machine.gpu[0].streams[7]) == cudaErrorNotReady;
  *stop = 1;
  machine.Wait();
  std::printf("every SM spins (still: %s): exchange of 256 MiB %s (%.2f ms), copy within a GPU %s\n",
              spinning ? "yes" : "no", done ? "done" : "NOT done", took, local ? "done" : "NOT done");
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
  for (const size_t mib : {2, 20, 256, 2048}) {
    if (child == 0) {
      cudaIpcMemHandle_t handle;
      take(&handle, sizeof(handle));
      const auto start = Clock::now();
      void* mapped = nullptr;
      CHECK(cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess));
      const double opened = Seconds(start) * 1e3;
      const auto again = Clock::now();
      CHECK(cudaIpcCloseMemHandle(mapped));
      const double times[2] = {opened, Seconds(again) * 1e3};
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
    std::printf("handles %4zu MiB, ms: cudaIpcGetMemHandle %.3f, open %.3f, close %.3f\n", mib, exported,
                times[0], times[1]);
    CHECK(cudaFree(memory));
  }
  if (child == 0) std::exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) std::printf("handles: the other process failed\n");
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = count > 1 ? words[1] : "all";
  if (what == "handles") {
    Handles();
    return 0;
  }
  CHECK(cuInit(0));
  const Machine machine;
  if (machine.gpus < 2 && what != "queues" && what != "calls") {
    std::fprintf(stderr, "two GPUs are needed for: %s\n", what.c_str());
    return 1;
  }
  if (what == "all" || what == "directions") Directions(machine);
  if (what == "all" || what == "streams") Streams(machine);
  if (what == "all" || what == "operations") Operations(machine);
  if (what == "all" || what == "sms") FullSms(machine);
  if (what == "all" || what == "queues") Queues(machine);
  if (what == "all" || what == "calls") Calls(machine);
  return 0;
}
