// SPDX-License-Identifier: Apache-2.0
//
// The driver interface on a GPU.
#ifndef NCCLTUNE_SENDRECV_CUDA_DRIVER_H_
#define NCCLTUNE_SENDRECV_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sendrecv/cuda_api.h"
#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

// Makes a context the current one of the thread as long as it lives. Enough for what is enqueued.
class Current {
 public:
  Current(const cu::Api& api, cu::Context context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const cu::Api& api_;
  bool pushed_ = false;
};

// And a capture somewhere forbids nothing in it: what is done here is no part of that, and would
// end it otherwise.
class InContext {
 public:
  InContext(const cu::Api& api, cu::Context context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const cu::Api& api_;
  int mode_ = cu::kCaptureRelaxed;
  Current current_;
};

// The one of CUDA's runtime, kept for good. Null: there is none.
cu::Context PrimaryContext(const cu::Api& api, int device);

// An allocation as CUDA knows it.
struct Allocation {
  cu::Pointer base = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;         // of no other allocation of the process, also later
  int device = -1;         // its number in this process
  bool shareable = false;  // by a legacy handle to other processes
};

class CudaDriver final : public Driver {
 public:
  // On the thread's current context, or of the device where it has none. Null: that GPU cannot do
  // what is needed, and `why` says what.
  static std::unique_ptr<CudaDriver> OfCurrent(const cu::Api& api, std::string* why);

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

  // Behind all that is in any stream of the context. False: the driver cannot (before CUDA 12.5).
  bool RecordAll(Event event);
  // All that was enqueued, or was before the event was recorded, has run.
  bool IsOver(Stream stream);
  bool HasHappened(Event event);

  // Of a GPU's memory; nothing for any other.
  std::optional<Allocation> Find(DeviceAddress address) const;
  DeviceAddress Allocate(uint64_t bytes);
  void Free(DeviceAddress address);

  // For checks of contents alone. `function` runs in the stream's order and calls no CUDA.
  void* AllocateHost(uint64_t bytes);
  void FreeHost(void* address);
  bool CopyToHost(Stream stream, void* to, DeviceAddress from, uint64_t bytes);
  bool Host(Stream stream, void (*function)(void*), void* argument);

  bool Export(const Allocation& allocation, cu::IpcMemory* handle) const;
  // 0: CUDA refused.
  DeviceAddress Import(const cu::IpcMemory& handle) const;
  void CloseImport(DeviceAddress base) const;
  // Memory of another GPU of this process can be reached from this one.
  bool EnablePeer(cu::Context peer) const;

  const cu::Api& api() const { return api_; }
  cu::Context context() const { return context_; }
  cu::Device device() const { return device_; }
  const cu::Uuid& uuid() const { return uuid_; }

 private:
  CudaDriver(const cu::Api& api, cu::Context context, cu::Device device, const cu::Uuid& uuid)
      : api_(api), context_(context), device_(device), uuid_(uuid) {}

  // Tells of a refusal, once.
  bool Well(cu::Result result) const;

  const cu::Api& api_;
  cu::Context context_;
  cu::Device device_;
  cu::Uuid uuid_;
};

// Host memory that GPUs of this process see at the same address, as long as it lives.
class Pinned {
 public:
  // False in the end: CUDA refused.
  Pinned(const CudaDriver& driver, void* memory, size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  const cu::Api& api_;
  cu::Context context_;
  void* memory_ = nullptr;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CUDA_DRIVER_H_
