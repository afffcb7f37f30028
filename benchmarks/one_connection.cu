// SPDX-License-Identifier: Apache-2.0
//
// What blocks what when all streams share one connection to the GPU, and what a wait kernel costs.
// The design of send/recv for CUDA_DEVICE_MAX_CONNECTIONS=1 rests on these facts
// (docs/design/sendrecv.md, "One connection").
//
//   nvcc -O2 -std=c++17 -arch=sm_90 -o one_connection benchmarks/one_connection.cu -lcuda -ldl
//   ./one_connection
//
// Needs one GPU. Runs itself with 1 and with 8 connections, because CUDA reads the number once in a
// process. Each row enqueues some operations that wait for a flag. Then, in separate rounds, one
// operation in another stream: does it complete while the others wait? "happens" rows ask whether
// an operation of the row itself completes. Every wait ends after 2 s at the latest.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.cuh"

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMiB = size_t{1} << 20;
constexpr unsigned long long kLongestWait = 2'000'000'000ULL;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

__device__ uint32_t Load(const uint32_t* flag) {
  uint32_t value = 0;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ void Store(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(flag), "r"(value) : "memory");
}

__device__ unsigned long long Now() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Writes 1 to `raise`, then waits until `first` and `second` are set. Null pointers are left out.
__global__ void Exchange(uint32_t* raise, const uint32_t* first, const uint32_t* second,
                         unsigned sleep_ns) {
  if (threadIdx.x != 0) return;
  if (raise != nullptr) Store(raise, 1);
  const unsigned long long start = Now();
  for (const uint32_t* flag : {first, second}) {
    while (flag != nullptr && Load(flag) == 0 && Now() - start < kLongestWait) {
      __nanosleep(sleep_ns);
    }
  }
}

__global__ void Fma(float* out, int rounds) {
  float a = static_cast<float>(threadIdx.x);
  float b = 1.0001F;
  float c = 0.5F;
  float d = 0.25F;
  for (int i = 0; i < rounds; ++i) {
    a = fmaf(a, b, c);
    c = fmaf(c, b, d);
    d = fmaf(d, b, a);
    b = fmaf(b, 0.999F, 0.001F);
  }
  if (a + b + c + d == 12345.0F) *out = a;
}

// Flags in pinned host memory, 128 bytes apart.
enum Flag { kGo, kReady, kStarted, kCopied, kDone, kHappened, kProbe, kFlags };

struct Machine {
  char* device[6] = {};
  char* host[4] = {};
  uint32_t* host_flags = nullptr;
  uint32_t* device_flags = nullptr;  // the same memory, as the GPU sees it
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaStream_t c = nullptr;
  cudaStream_t h = nullptr;
  cudaStream_t probe = nullptr;
  cudaStream_t high = nullptr;  // of the highest priority

  Machine() {
    for (char*& each : device) CHECK(cudaMalloc(&each, kMiB));
    for (char*& each : host) CHECK(cudaMallocHost(&each, kMiB));
    CHECK(cudaHostAlloc(&host_flags, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
    std::memset(host_flags, 0, 4096);
    CHECK(cudaHostGetDevicePointer(&device_flags, host_flags, 0));
    int lowest = 0;
    int highest = 0;
    CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    for (cudaStream_t* each : {&a, &b, &c, &h, &probe}) {
      CHECK(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking));
    }
    CHECK(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, highest));
    // Kernels are loaded at their first launch, which waits for running work.
    Kernel(a, nullptr);
    Fma<<<1, 1, 0, a>>>(reinterpret_cast<float*>(device[0]), 1);
    CHECK(cudaGetLastError());
    In(h);
    Out(h);
    Within(h);
    CHECK(cudaDeviceSynchronize());
  }

  uint32_t* On(Flag flag) const { return device_flags + 32 * flag; }
  volatile uint32_t& At(Flag flag) const {
    return *static_cast<volatile uint32_t*>(host_flags + 32 * flag);
  }

  void Wait(cudaStream_t stream, Flag flag) const {
    Exchange<<<1, 32, 0, stream>>>(nullptr, On(flag), nullptr, 100);
    CHECK(cudaGetLastError());
  }
  void Kernel(cudaStream_t stream, uint32_t* raise) const {
    Exchange<<<1, 32, 0, stream>>>(raise, nullptr, nullptr, 100);
    CHECK(cudaGetLastError());
  }
  void Write(cudaStream_t stream, Flag flag) const {
    CHECK(cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(On(flag)), 1, 0));
  }
  void In(cudaStream_t stream, int which = 0) const {
    CHECK(cudaMemcpyAsync(device[which], host[which], kMiB, cudaMemcpyHostToDevice, stream));
  }
  void Out(cudaStream_t stream, int which = 2) const {
    CHECK(cudaMemcpyAsync(host[which], device[which], kMiB, cudaMemcpyDeviceToHost, stream));
  }
  void Within(cudaStream_t stream) const {
    CHECK(cudaMemcpyAsync(device[5], device[4], kMiB, cudaMemcpyDeviceToDevice, stream));
  }
  void Clear() const {
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < kFlags; ++i) At(static_cast<Flag>(i)) = 0;
  }
  void Release() const {
    At(kReady) = 1;
    At(kGo) = 1;
    CHECK(cudaDeviceSynchronize());
  }
};

bool DoneIn(cudaStream_t stream, double seconds) {
  const auto start = Clock::now();
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
    if (Seconds(start) > seconds) return false;
  }
  return true;
}

bool IsSet(const Machine& machine, Flag flag, double seconds) {
  const auto start = Clock::now();
  while (machine.At(flag) == 0) {
    if (Seconds(start) > seconds) return false;
  }
  return true;
}

constexpr double kPatience = 0.03;

struct Row {
  const char* name;
  std::function<void()> enqueue;
  // What the row itself must do while it waits; empty: nothing.
  std::function<bool()> happens = nullptr;
};

void Run(const Machine& m, const std::vector<Row>& rows) {
  const std::pair<const char*, std::function<void()>> probes[] = {
      {"kernel", [&] { m.Kernel(m.probe, m.On(kProbe)); }},
      {"in", [&] { m.In(m.probe, 1); }},
      {"out", [&] { m.Out(m.probe, 3); }},
      {"within", [&] { m.Within(m.probe); }},
      {"kernel of the highest priority", [&] { m.Kernel(m.high, m.On(kProbe)); }}};
  for (const Row& row : rows) {
    std::printf("%-88s", row.name);
    for (const auto& [name, probe] : probes) {
      m.Clear();
      row.enqueue();
      probe();
      const bool high = std::strlen(name) > 6;
      const bool done = DoneIn(high ? m.high : m.probe, kPatience);
      std::printf("  %s %-7s", high ? "prior" : name, done ? "runs" : "BLOCKED");
      m.Release();
    }
    if (row.happens) {
      m.Clear();
      row.enqueue();
      std::printf("  happens: %s", row.happens() ? "yes" : "NO");
      m.Release();
    }
    std::printf("\n");
  }
}

void Rows(const Machine& m) {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto happened = [&] { return IsSet(m, kHappened, kPatience); };
  const auto exchange = [&](bool second) {
    // The gate comes first, so that no later kernel can hold it up.
    Exchange<<<1, 32, 0, m.h>>>(nullptr, m.On(kStarted), m.On(kReady), 100);
    Exchange<<<1, 32, 0, m.a>>>(m.On(kStarted), m.On(kCopied), nullptr, 100);
    m.Out(m.h);
    m.Write(m.h, kCopied);
    if (second) m.Kernel(m.a, m.On(kHappened));
  };
  Run(m,
      {{"1 A: stream memory wait",
        [&] {
          CHECK(cuStreamWaitValue32(m.a, reinterpret_cast<CUdeviceptr>(m.On(kGo)), 1,
                                    CU_STREAM_WAIT_VALUE_GEQ));
        }},
       {"2 A: wait kernel", [&] { m.Wait(m.a, kGo); }},
       {"3 A: wait kernel, copy out",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
        }},
       {"4 A: wait kernel, copy out, kernel",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          m.Kernel(m.a, nullptr);
        }},
       {"5 A: wait kernel, copy out, event; B: waits for the event",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          CHECK(cudaEventRecord(event, m.a));
          CHECK(cudaStreamWaitEvent(m.b, event, 0));
        }},
       {"6 A: wait kernel, copy out, stream memory write",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          m.Write(m.a, kDone);
        }},
       {"7 A: wait kernel, copy out, 4-byte copy out; B: wait kernel",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          CHECK(cudaMemcpyAsync(m.host[2], m.device[2], 4, cudaMemcpyDeviceToHost, m.a));
          m.Wait(m.b, kReady);
        }},
       {"8 A: wait kernel, kernel",
        [&] {
          m.Wait(m.a, kGo);
          m.Kernel(m.a, nullptr);
        }},
       {"9 A: wait kernel, stream memory write",
        [&] {
          m.Wait(m.a, kGo);
          m.Write(m.a, kDone);
        }},
       {"10 A: wait kernel; B: stream memory write",
        [&] {
          m.Wait(m.a, kGo);
          m.Write(m.b, kHappened);
        },
        happened},
       {"11 A: wait kernel; B: kernel, stream memory write",
        [&] {
          m.Wait(m.a, kGo);
          m.Kernel(m.b, nullptr);
          m.Write(m.b, kHappened);
        },
        happened},
       {"12 A: wait kernel; B: one-warp kernel that writes a flag",
        [&] {
          m.Wait(m.a, kGo);
          m.Kernel(m.b, m.On(kHappened));
        },
        happened},
       {"13 A: wait kernel, copy out, write; H (idle, has copied before): kernel, copy in, write",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          m.Write(m.a, kDone);
          m.Kernel(m.h, nullptr);
          m.In(m.h);
          m.Write(m.h, kHappened);
        },
        happened},
       {"14 the same, H: wait kernel that another flag ends",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          m.Write(m.a, kDone);
          m.Wait(m.h, kReady);
          m.In(m.h);
          m.Write(m.h, kHappened);
        },
        [&] {
          m.At(kReady) = 1;
          return happened();
        }},
       {"15 A: wait kernel, copy out, write; A: wait kernel (as a gate behind the copy)",
        [&] {
          m.Wait(m.a, kGo);
          m.Out(m.a);
          m.Write(m.a, kDone);
          m.Wait(m.a, kReady);
        }},
       {"16 A: wait kernel, event; C (only copies): waits for the event, copy in",
        [&] {
          m.Wait(m.a, kGo);
          CHECK(cudaEventRecord(event, m.a));
          CHECK(cudaStreamWaitEvent(m.c, event, 0));
          m.In(m.c);
        }},
       {"17 A: wait kernel, event; C: waits for the event, kernel",
        [&] {
          m.Wait(m.a, kGo);
          CHECK(cudaEventRecord(event, m.a));
          CHECK(cudaStreamWaitEvent(m.c, event, 0));
          m.Kernel(m.c, nullptr);
        }},
       {"18 H: gate kernel; A: raises and waits for the copy; H: copy out, write",
        [&] { exchange(false); },
        [&] {
          m.At(kReady) = 1;
          return DoneIn(m.a, kPatience);
        }},
       {"19 the same, A: kernel behind it", [&] { exchange(true); },
        [&] {
          m.At(kReady) = 1;
          return happened();
        }}});
  CHECK(cudaEventDestroy(event));
}

void Costs(const Machine& m, bool waits_by_stream) {
  std::vector<double> launches;
  m.Clear();
  for (int i = 0; i < 1000; ++i) {
    const auto start = Clock::now();
    m.Kernel(m.a, nullptr);
    launches.push_back(Seconds(start) * 1e6);
    if (i % 100 == 99) CHECK(cudaDeviceSynchronize());
  }
  std::printf("launch of a one-warp kernel: %.2f us of CPU (median of 1000)\n", Median(launches));

  const auto latency = [&](const std::function<void()>& enqueue) {
    std::vector<double> times;
    for (int i = 0; i < 200; ++i) {
      m.Clear();
      enqueue();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      const auto start = Clock::now();
      m.At(kGo) = 1;
      while (m.At(kHappened) == 0) {
      }
      times.push_back(Seconds(start) * 1e6);
    }
    return Median(times);
  };
  for (const unsigned sleep_ns : {0U, 100U, 500U, 2000U}) {
    std::printf("flag written by the host until the stream's next kernel writes a flag, sleep %u ns: "
                "%.2f us\n", sleep_ns, latency([&] {
                  Exchange<<<1, 32, 0, m.a>>>(nullptr, m.On(kGo), nullptr, sleep_ns);
                  m.Kernel(m.a, m.On(kHappened));
                }));
  }
  std::printf("flag written by the host until the stream's memory write, behind a wait kernel: "
              "%.2f us\n", latency([&] {
                m.Wait(m.a, kGo);
                m.Write(m.a, kHappened);
              }));
  if (waits_by_stream) {
    std::printf("flag written by the host until the stream's memory write, behind a stream memory "
                "wait: %.2f us\n", latency([&] {
                  CHECK(cuStreamWaitValue32(m.a, reinterpret_cast<CUdeviceptr>(m.On(kGo)), 1,
                                            CU_STREAM_WAIT_VALUE_GEQ));
                  m.Write(m.a, kHappened);
                }));
  }
}

void Beside(const Machine& m) {
  int sms = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  std::vector<cudaStream_t> streams(16);
  for (auto& each : streams) CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
  const auto compute = [&](size_t warps) {
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
      m.Clear();
      for (size_t k = 0; k < warps; ++k) m.Wait(streams[k], kGo);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const auto start = Clock::now();
      // Eight blocks of 256 threads for each SM, many times.
      Fma<<<sms * 64, 256, 0, m.b>>>(reinterpret_cast<float*>(m.device[0]), 20'000);
      CHECK(cudaGetLastError());
      CHECK(cudaStreamSynchronize(m.b));
      if (i > 1) times.push_back(Seconds(start) * 1e3);
      m.Release();
    }
    return Median(times);
  };
  const double alone = compute(0);
  std::printf("a kernel that fills %d SMs, alone: %.3f ms", sms, alone);
  for (const size_t warps : {1, 4, 16}) {
    const double with = compute(warps);
    std::printf("; beside %zu wait kernels: %.3f ms (%+.2f%%)", warps, with,
                (with / alone - 1) * 100);
  }
  std::printf("\n");
  for (auto& each : streams) CHECK(cudaStreamDestroy(each));
}

// Watts of the GPU by NVML, while `warps` wait kernels run.
void Power(const Machine& m) {
  void* const nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (nvml == nullptr) {
    std::printf("power: no NVML\n");
    return;
  }
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto by_bus =
      reinterpret_cast<int (*)(const char*, void**)>(dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto usage =
      reinterpret_cast<int (*)(void*, unsigned*)>(dlsym(nvml, "nvmlDeviceGetPowerUsage"));
  char bus[32] = {};
  void* device = nullptr;
  CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), 0));
  unsigned milliwatts = 0;
  if (init == nullptr || by_bus == nullptr || usage == nullptr || init() != 0 ||
      by_bus(bus, &device) != 0 || usage(device, &milliwatts) != 0) {
    std::printf("power: NVML does not report it\n");
    return;
  }
  std::vector<cudaStream_t> streams(16);
  for (auto& each : streams) CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
  std::printf("power, W:");
  for (const int warps : {0, 1, 16, 0}) {
    m.Clear();
    for (int k = 0; k < warps; ++k) m.Wait(streams[static_cast<size_t>(k)], kGo);
    // NVML reports an average of the last second.
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    std::vector<double> watts;
    for (int i = 0; i < 20; ++i) {
      if (usage(device, &milliwatts) == 0) watts.push_back(milliwatts / 1e3);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::printf(" %d wait kernels %.1f;", warps, watts.empty() ? 0.0 : Median(watts));
    m.Release();
  }
  std::printf("\n");
  for (auto& each : streams) CHECK(cudaStreamDestroy(each));
}

int Measure(const std::string& connections) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections.c_str(), 1);
  alarm(60);
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(nullptr));
  const Machine machine;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("CUDA_DEVICE_MAX_CONNECTIONS=%s, %s\n", connections.c_str(), properties.name);
  Rows(machine);
  Costs(machine, true);
  Beside(machine);
  if (connections == "1") Power(machine);
  return 0;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int worst = 0;
  for (const char* connections : {"1", "8"}) {
    const pid_t child = fork();
    if (child == 0) return Measure(connections);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 1;
    if (status != 0) worst = 1;
  }
  return worst;
}
