// SPDX-License-Identifier: Apache-2.0
// The Driver interface, implemented with CUDA's driver API.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/cuda_api.h"
#include "sendrecv/cuda/driver.h"
#include "sendrecv/cuda/wait_kernels.h"

namespace nccltune::sendrecv {

// Opens libcuda once in a process. Returns null and the reason in `why` if the library is missing
// or lacks a function.
const cu::Api* OpenCuda(std::string* why);

// Returns CUDA's id of a context. It changes when a program resets the context (cudaDeviceReset),
// whose handle stays the same. Returns 0 after a reset until the context is used again, and with
// CUDA before 12.0.
uint64_t ContextId(const cu::Api& api, cu::Context context);

// The wait kernels (wait_kernels.h), loaded in a context.
class LoadedKernels {
 public:
  // Returns the kernels of the context, and loads them at the first call and at the first one after
  // a reset of the context. Such a call waits for work in progress, so make it before a stream may
  // wait. Returns null and the reason in `why` if CUDA refuses. Never unloaded, because unloading
  // waits as well.
  static std::shared_ptr<LoadedKernels> Of(const cu::Api& api, cu::Context context,
                                           std::string* why);

  GroupStarts& starts() { return starts_; }
  cu::Result LaunchGate(Stream stream, GateKernel gate);
  cu::Result LaunchExchange(Stream stream, ExchangeKernel exchange);

 private:
  explicit LoadedKernels(const cu::Api& api) : api_(api) {}
  cu::Result Load();
  cu::Result Launch(cu::Function function, Stream stream, void* parameters);

  const cu::Api& api_;
  cu::Function gate_ = nullptr;
  cu::Function exchange_ = nullptr;
  cu::Pointer started_ = 0;  // in the GPU's memory, because only its kernels use it
  uint64_t context_id_ = 0;
  GroupStarts starts_;
};

// Makes a context current on this thread while the object lives. Use it for calls that only enqueue
// work.
class ScopedContext {
 public:
  ScopedContext(const cu::Api& api, cu::Context context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  const cu::Api& api_;
  bool pushed_ = false;
};

// Like ScopedContext, and also sets the relaxed capture mode. Use it for all other calls: in CUDA's
// default mode some of them would end a stream capture of another thread.
class ScopedRelaxedContext {
 public:
  ScopedRelaxedContext(const cu::Api& api, cu::Context context);
  ~ScopedRelaxedContext();
  ScopedRelaxedContext(const ScopedRelaxedContext&) = delete;
  ScopedRelaxedContext& operator=(const ScopedRelaxedContext&) = delete;

 private:
  const cu::Api& api_;
  int mode_ = cu::kCaptureRelaxed;
  ScopedContext current_;
};

// Returns the primary context of a device, which CUDA's runtime uses, and retains it for ever.
// Returns null if CUDA refuses.
cu::Context PrimaryContext(const cu::Api& api, int device);

// An allocation, as CUDA reports it.
struct Allocation {
  cu::Pointer base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;         // CUDA's buffer id: it is never reused in the process
  int device = -1;         // ordinal of the device in this process
  bool shareable = false;  // other processes can open it by a legacy CUDA IPC handle
};

// A reset of the context destroys its streams, events and memory. CUDA crashes if one of these
// streams or events is used, and the memory's addresses may belong to the program by now. So after
// a reset all functions that free do nothing, and all work counts as complete.
class CudaDriver final : public Driver {
 public:
  // Uses the thread's current context, or the primary context of device 0 if there is none. Returns
  // null if the GPU lacks a feature, with the reason in `why`.
  static std::unique_ptr<CudaDriver> OfCurrent(const cu::Api& api, std::string* why);

  ~CudaDriver() override;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  // Creates a spare stream and a spare event, unless they exist. NewStream and NewEvent return the
  // spare if CUDA refuses a new one, because by then a peer may already wait for this rank. Reserve
  // returns false if CUDA refuses a spare.
  bool Reserve();
  void FreeSpares();

  Stream NewStream() override;
  void DeleteStream(Stream stream) override;
  Event NewEvent() override;
  void DeleteEvent(Event event) override;
  bool Record(Event event, Stream stream) override;
  bool WaitEvent(Stream stream, Event event) override;
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override;
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override;
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override;
  bool Capturing(Stream stream) override;
  // Returns whether the stream belongs to this context. Streams of green contexts and of others
  // that are no primary ones do not.
  bool Owns(Stream stream) const;

  // Loads the wait kernels. The functions below require that it has returned true.
  bool LoadKernels(std::string* why);
  GroupStarts& starts() override { return kernels_->starts(); }
  bool LaunchGate(Stream stream, const GateKernel& gate) override;
  bool LaunchExchange(Stream stream, const ExchangeKernel& exchange) override;
  bool HasDefaultPriority(Stream stream) override;
  // Ends a gate whose launch blocks until the gate has ended: for 10 s it has not returned,
  // although the gate runs. The gate waits for a later launch, so it would never end. Makes the
  // launch fail, and returns true. A debugger or profiler may make launches block. Thread-safe.
  bool EndBlockedLaunch();

  // Records an event after all work of the context. Returns false if CUDA refuses or is older than
  // 12.5, which lacks the function.
  bool RecordAll(Event event);
  // IsComplete returns whether all work of the stream is complete. HasHappened returns whether all
  // work before the event is complete.
  bool IsComplete(Stream stream) override;
  bool HasHappened(Event event);

  // Returns the allocation at an address of GPU memory. Returns nothing for other memory.
  std::optional<Allocation> Find(DeviceAddress address) const;
  DeviceAddress Allocate(uint64_t bytes);
  void Free(DeviceAddress address);

  // The next four functions are used only to compare contents (NCCLTUNE_SENDRECV=verify).
  // `function` runs on the CPU in the order of the stream. `function` must not call CUDA.
  void* AllocateHost(uint64_t bytes);
  void FreeHost(void* address);
  bool CopyToHost(Stream stream, void* to, DeviceAddress from, uint64_t bytes);
  bool LaunchHostFunction(Stream stream, void (*function)(void*), void* argument);

  bool Export(const Allocation& allocation, cu::IpcMemory* handle) const;
  // Maps memory of another process. Returns its address, or 0 if CUDA refuses.
  DeviceAddress Import(const cu::IpcMemory& handle) const;
  void CloseImport(DeviceAddress base) const;
  // Enables access to the memory of another context of this process. Returns false if CUDA refuses.
  bool EnablePeer(cu::Context peer) const;

  // Returns whether the context has been reset. Always false with CUDA before 12.0.
  bool IsContextReset() const;

  const cu::Api& api() const { return api_; }
  cu::Context context() const { return context_; }
  cu::Device device() const { return device_; }
  const cu::Uuid& uuid() const { return uuid_; }

 private:
  CudaDriver(const cu::Api& api, cu::Context context, cu::Device device, const cu::Uuid& uuid)
      : api_(api),
        context_(context),
        context_id_(ContextId(api, context)),
        device_(device),
        uuid_(uuid) {}

  Stream CreateStream() const;
  Event CreateEvent() const;
  // Returns whether `result` is a success. Logs each other result once.
  bool Succeeded(cu::Result result) const;

  const cu::Api& api_;
  cu::Context context_;
  uint64_t context_id_;
  cu::Device device_;
  cu::Uuid uuid_;
  std::atomic<Stream> spare_stream_ = nullptr;
  std::atomic<Event> spare_event_ = nullptr;
  std::shared_ptr<LoadedKernels> kernels_;
  // The launch of a gate that has not returned.
  struct PendingLaunch {
    const GateKernel* gate = nullptr;
    Stream stream = nullptr;
    std::chrono::steady_clock::time_point began;
    bool ended = false;
  };
  std::mutex pending_mutex_;
  PendingLaunch pending_;
};

// Registers host memory with CUDA while the object lives. GPUs of this process see it at the same
// address.
class PinnedMemory {
 public:
  // The object converts to false if CUDA refuses.
  PinnedMemory(const CudaDriver& driver, void* memory, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  const cu::Api& api_;
  cu::Context context_;
  void* memory_ = nullptr;
};

}  // namespace nccltune::sendrecv
