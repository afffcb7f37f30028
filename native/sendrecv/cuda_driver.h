// SPDX-License-Identifier: Apache-2.0
//
// The Driver interface, implemented with CUDA's driver API.
#ifndef NCCLTUNE_SENDRECV_CUDA_DRIVER_H_
#define NCCLTUNE_SENDRECV_CUDA_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/cuda_api.h"
#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

// Opens libcuda once in a process. Returns null if it is missing or lacks a function, with the
// reason in `why`.
const cu::Api* OpenCuda(std::string* why);

// Makes a context current on this thread while the object lives. Sufficient for enqueuing work.
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

// Also sets the relaxed capture mode. In CUDA's default mode some calls would end a capture that
// another thread has in progress.
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

// Returns the context that CUDA's runtime uses, and retains it for ever; null: there is none.
cu::Context PrimaryContext(const cu::Api& api, int device);

// An allocation, as CUDA reports it.
struct Allocation {
  cu::Pointer base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;         // CUDA's buffer id: never used for another allocation of the process
  int device = -1;         // ordinal of the device in this process
  bool shareable = false;  // other processes can open it by a legacy handle
};

class CudaDriver final : public Driver {
 public:
  // Uses the thread's current context, or the primary context of device 0 if there is none. Returns
  // null if the GPU lacks a feature, with the reason in `why`.
  static std::unique_ptr<CudaDriver> OfCurrent(const cu::Api& api, std::string* why);

  ~CudaDriver() override;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  // Creates a spare stream and a spare event. They are used if CUDA has none when the peer already
  // relies on this side. Returns false if CUDA refuses.
  bool Reserve();

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

  // Records an event after all work of the context. Returns false if the driver cannot (before CUDA
  // 12.5).
  bool RecordAll(Event event);
  // Return whether the work of the stream, or before the event, is complete.
  bool IsComplete(Stream stream);
  bool HasHappened(Event event);

  // Returns the allocation of GPU memory; nothing for other memory.
  std::optional<Allocation> Find(DeviceAddress address) const;
  DeviceAddress Allocate(uint64_t bytes);
  void Free(DeviceAddress address);

  // These four are used only to compare contents (NCCLTUNE_SENDRECV=verify). `function` runs in the
  // stream's order and must not call CUDA.
  void* AllocateHost(uint64_t bytes);
  void FreeHost(void* address);
  bool CopyToHost(Stream stream, void* to, DeviceAddress from, uint64_t bytes);
  bool LaunchHostFunction(Stream stream, void (*function)(void*), void* argument);

  bool Export(const Allocation& allocation, cu::IpcMemory* handle) const;
  // Returns 0 if CUDA refuses.
  DeviceAddress Import(const cu::IpcMemory& handle) const;
  void CloseImport(DeviceAddress base) const;
  // Enables access to the memory of another GPU of this process.
  bool EnablePeer(cu::Context peer) const;

  const cu::Api& api() const { return api_; }
  cu::Context context() const { return context_; }
  cu::Device device() const { return device_; }
  const cu::Uuid& uuid() const { return uuid_; }

 private:
  CudaDriver(const cu::Api& api, cu::Context context, cu::Device device, const cu::Uuid& uuid)
      : api_(api), context_(context), device_(device), uuid_(uuid) {}

  Stream CreateStream() const;
  Event CreateEvent() const;
  // Returns whether `result` is a success. Logs other results, each once.
  bool Succeeded(cu::Result result) const;

  const cu::Api& api_;
  cu::Context context_;
  cu::Device device_;
  cu::Uuid uuid_;
  std::atomic<Stream> spare_stream_ = nullptr;
  std::atomic<Event> spare_event_ = nullptr;
};

// Registers host memory with CUDA while the object lives. GPUs of this process see it at the same
// address.
class PinnedMemory {
 public:
  // Converts to false if CUDA refused.
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

#endif  // NCCLTUNE_SENDRECV_CUDA_DRIVER_H_
