// SPDX-License-Identifier: Apache-2.0
//
// A fake CUDA driver, built as libcuda.so.1. Its GPU memory is host memory and its streams are
// threads, so that calls are as asynchronous as on a GPU.
//
// Environment: FAKE_CUDA_GPUS (4, read once), FAKE_CUDA_MEMORY (bytes of each GPU, 1 GiB),
// FAKE_CUDA_L2 (bytes, 256 KiB), FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_INIT (the result of cuInit,
// 0), FAKE_CUDA_OWN_GPUS (set: no GPU is shared between processes).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/cuda_api.h"

namespace fake {

struct EventRecord;
struct EventState;
struct GraphExecRecord;
struct GraphRecord;
struct StreamRecord;

}  // namespace fake

namespace {

using namespace fake;  // NOLINT(google-build-using-namespace)
using Event = EventRecord*;
using Graph = GraphRecord*;
using GraphExec = GraphExecRecord*;
using Stream = StreamRecord*;

using Clock = std::chrono::steady_clock;
using DevicePointer = nccltune::cu::Pointer;
using nccltune::cu::Context;
using nccltune::cu::Device;
using nccltune::cu::Function;
using nccltune::cu::Module;
using nccltune::cu::Result;
using nccltune::cu::Uuid;
using Operation = std::function<void()>;

constexpr Result kInvalidValue = 1;
constexpr Result kInvalidContext = 201;

size_t Setting(const char* name, size_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Gpu {
  size_t used = 0;
};

struct Machine {
  std::mutex mutex;
  std::vector<Gpu> gpus{Setting("FAKE_CUDA_GPUS", 4)};
  struct Block {
    size_t gpu;
    size_t bytes;
  };
  std::map<void*, Block> blocks;
  std::set<Stream> streams;
  long objects = 0;  // streams, events, graphs, host blocks, retained contexts
};

size_t Memory() { return Setting("FAKE_CUDA_MEMORY", size_t{1} << 30U); }

Machine& TheMachine() {
  static Machine* const machine = new Machine;
  return *machine;
}

void Count(long change) {
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().objects += change;
}

thread_local int current = -1;  // the GPU of the thread's context

void* Pointer(DevicePointer address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace

namespace fake {

struct GraphRecord {
  std::vector<Operation> operations;
};

struct GraphExecRecord {
  std::vector<Operation> operations;
};

struct EventState {
  std::mutex mutex;
  uint64_t recorded = 0;
  uint64_t reached = 0;
  Clock::time_point at;
};

// As in CUDA, an event may be destroyed before a stream reaches it.
struct EventRecord {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

struct StreamRecord {
  StreamRecord() : thread([this] { Loop(); }) {}
  ~StreamRecord() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      quit = true;
    }
    changed.notify_all();
    thread.join();
  }

  void Enqueue(Operation operation) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (capture != nullptr) {
      capture->operations.push_back(std::move(operation));
      return;
    }
    queue.push_back(std::move(operation));
    changed.notify_all();
  }

  void Loop() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      busy = false;
      changed.notify_all();
      changed.wait(lock, [this] { return quit || !queue.empty(); });
      if (queue.empty()) return;
      busy = true;
      const Operation operation = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      operation();
      lock.lock();
    }
  }

  void Drain() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return !busy && queue.empty(); });
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> queue;
  std::unique_ptr<GraphRecord> capture;
  bool busy = false;
  bool quit = false;
  int gpu = current;
  std::thread thread;
};

}  // namespace fake

#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-declarations"
extern "C" {

// For tests: the number of allocations and objects that were not released.
long fake_cuda_live();
long fake_cuda_live() {
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  return TheMachine().objects + static_cast<long>(TheMachine().blocks.size());
}

Result cuInit(unsigned) { return static_cast<Result>(Setting("FAKE_CUDA_INIT", 0)); }

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

Result cuGetErrorName(Result error, const char** name) {
  *name = error == nccltune::cu::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return 0;
}

Result cuGetErrorString(Result error, const char** text) {
  *text = error == nccltune::cu::kOutOfMemory ? "out of memory" : "a made-up error";
  return 0;
}

Result cuDeviceGetCount(int* count) {
  *count = static_cast<int>(TheMachine().gpus.size());
  return 0;
}

Result cuDeviceGet(Device* device, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(TheMachine().gpus.size())) return kInvalidValue;
  *device = ordinal;
  return 0;
}

Result cuDeviceGetName(char* name, int length, Device) {
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  return 0;
}

Result cuDeviceGetUuid(Uuid* uuid, Device device) {
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device);
  // Processes of several emulated hosts have GPUs of their own.
  const pid_t process = std::getenv("FAKE_CUDA_OWN_GPUS") != nullptr ? getpid() : 0;
  std::memcpy(&uuid->bytes[4], &process, sizeof process);
  return 0;
}

Result cuDeviceGetAttribute(int* value, int attribute, Device) {
  const size_t capability = Setting("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
    case nccltune::cu::kL2CacheSize:
      *value = static_cast<int>(Setting("FAKE_CUDA_L2", size_t{256} << 10U));
      return 0;
    case nccltune::cu::kMultiprocessors:
      *value = 4;
      return 0;
    case nccltune::cu::kComputeCapabilityMajor:
      *value = static_cast<int>(capability / 10);
      return 0;
    case nccltune::cu::kComputeCapabilityMinor:
      *value = static_cast<int>(capability % 10);
      return 0;
    default:
      return kInvalidValue;
  }
}

Result cuCtxGetDevice(Device* device) {
  *device = current;
  return current < 0 ? kInvalidContext : 0;
}

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  *context = reinterpret_cast<Context>(static_cast<uintptr_t>(device) + 1);
  Count(1);
  return 0;
}

Result cuDevicePrimaryCtxRelease_v2(Device) {
  Count(-1);
  return 0;
}

Result cuCtxSetCurrent(Context context) {
  current = static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
  return 0;
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (current < 0) return kInvalidContext;
  Machine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  *total = Memory();
  *free = Memory() - machine.gpus[static_cast<size_t>(current)].used;
  return 0;
}

Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes) {
  if (current < 0) return kInvalidContext;
  Machine& machine = TheMachine();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  Gpu& gpu = machine.gpus[static_cast<size_t>(current)];
  if (gpu.used + bytes > Memory()) return nccltune::cu::kOutOfMemory;
  void* const block = std::malloc(bytes);
  gpu.used += bytes;
  machine.blocks[block] = {static_cast<size_t>(current), bytes};
  *pointer = static_cast<DevicePointer>(reinterpret_cast<uintptr_t>(block));
  return 0;
}

Result cuMemFree_v2(DevicePointer pointer) {
  Machine& machine = TheMachine();
  // Like CUDA, waits for operations that may use the memory. Streams of this GPU are not destroyed
  // meanwhile, but those of other GPUs may be.
  std::vector<Stream> streams;
  {
    const std::lock_guard<std::mutex> lock(machine.mutex);
    std::copy_if(machine.streams.begin(), machine.streams.end(), std::back_inserter(streams),
                 [](Stream stream) { return stream->gpu == current; });
  }
  for (const Stream stream : streams) stream->Drain();
  const std::lock_guard<std::mutex> lock(machine.mutex);
  const auto found = machine.blocks.find(Pointer(pointer));
  if (found == machine.blocks.end()) return kInvalidValue;
  machine.gpus[found->second.gpu].used -= found->second.bytes;
  machine.blocks.erase(found);
  std::free(Pointer(pointer));
  return 0;
}

Result cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::malloc(bytes);
  Count(1);
  return 0;
}

Result cuMemFreeHost(void* pointer) {
  std::free(pointer);
  Count(-1);
  return 0;
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Stream stream) {
  // Pageable host memory is read before the call returns.
  const auto* const start = static_cast<const char*>(from);
  const auto copy = std::make_shared<std::vector<char>>(start, start + bytes);
  stream->Enqueue([=] { std::memcpy(Pointer(to), copy->data(), bytes); });
  return 0;
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Stream stream) {
  stream->Enqueue([=] { std::memcpy(to, Pointer(from), bytes); });
  return 0;
}

Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, Stream stream) {
  stream->Enqueue([=] { std::memcpy(Pointer(to), Pointer(from), bytes); });
  return 0;
}

Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, Stream stream) {
  stream->Enqueue([=] { std::memset(Pointer(to), value, bytes); });
  return 0;
}

Result cuStreamCreate(Stream* stream, unsigned) {
  if (current < 0) return kInvalidContext;
  *stream = new StreamRecord;
  Count(1);
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().streams.insert(*stream);
  return 0;
}

Result cuStreamDestroy_v2(Stream stream) {
  {
    const std::lock_guard<std::mutex> lock(TheMachine().mutex);
    TheMachine().streams.erase(stream);
  }
  delete stream;
  Count(-1);
  return 0;
}

Result cuStreamBeginCapture_v2(Stream stream, int) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->capture = std::make_unique<GraphRecord>();
  return 0;
}

Result cuStreamIsCapturing(Stream stream, int* status) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  *status = stream->capture != nullptr ? 1 : 0;
  return 0;
}

Result cuStreamEndCapture(Stream stream, Graph* graph) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  if (stream->capture == nullptr) return kInvalidValue;
  *graph = stream->capture.release();
  Count(1);
  return 0;
}

Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  *exec = new GraphExecRecord{graph->operations};
  Count(1);
  return 0;
}

Result cuGraphLaunch(GraphExec exec, Stream stream) {
  for (const Operation& operation : exec->operations) stream->Enqueue(operation);
  return 0;
}

Result cuGraphExecDestroy(GraphExec exec) {
  delete exec;
  Count(-1);
  return 0;
}

Result cuGraphDestroy(Graph graph) {
  delete graph;
  Count(-1);
  return 0;
}

Result cuModuleLoadData(Module* module, const void* image) {
  if (std::strstr(static_cast<const char*>(image), ".entry nccltune_load") == nullptr) {
    return kInvalidValue;
  }
  *module = reinterpret_cast<Module>(new char);
  Count(1);
  return 0;
}

Result cuModuleUnload(Module module) {
  delete reinterpret_cast<char*>(module);
  Count(-1);
  return 0;
}

Result cuModuleGetFunction(Function* function, Module module, const char*) {
  *function = reinterpret_cast<Function>(module);
  return 0;
}

// Runs for one nanosecond for each round, its second parameter.
Result cuLaunchKernel(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, Stream stream, void** parameters, void**) {
  const auto rounds = *static_cast<const unsigned*>(parameters[1]);
  stream->Enqueue([rounds] { std::this_thread::sleep_for(std::chrono::nanoseconds(rounds)); });
  return 0;
}

Result cuEventCreate(Event* event, unsigned) {
  *event = new EventRecord;
  Count(1);
  return 0;
}

Result cuEventDestroy_v2(Event event) {
  delete event;
  Count(-1);
  return 0;
}

Result cuEventRecord(Event event, Stream stream) {
  const std::shared_ptr<EventState> state = event->state;
  uint64_t number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = ++state->recorded;
  }
  stream->Enqueue([state, number] {
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->reached = number;
    state->at = Clock::now();
  });
  return 0;
}

Result cuEventQuery(Event event) {
  const std::lock_guard<std::mutex> lock(event->state->mutex);
  return event->state->reached == event->state->recorded ? 0 : nccltune::cu::kNotReady;
}

Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  const EventState& a = *start->state;
  const EventState& b = *end->state;
  const std::scoped_lock lock(start->state->mutex, end->state->mutex);
  if (a.reached != a.recorded || b.reached != b.recorded) return nccltune::cu::kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(b.at - a.at).count();
  return 0;
}

Result cuLaunchHostFunc(Stream stream, void (*function)(void*), void* argument) {
  stream->Enqueue([function, argument] { function(argument); });
  return 0;
}

}  // extern "C"
