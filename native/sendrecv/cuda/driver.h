// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA that the send/recv protocol needs. Tests implement them in software.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace nccltune::sendrecv {

using Stream = void*;            // CUstream
using Event = void*;             // CUevent
using DeviceAddress = uint64_t;  // CUdeviceptr

// A counter in shared memory that the sender's and the receiver's processes and GPUs can access.
using Flag = std::atomic<uint32_t>;

// Returns whether a flag has reached a value. The comparison is cyclic, like
// CU_STREAM_WAIT_VALUE_GEQ.
inline bool Reached(uint32_t flag, uint32_t value) {
  return static_cast<int32_t>(flag - value) >= 0;
}

// Setting a flag to `number + kFarAhead` ends all waits for the flag. The value is ahead of every
// awaited value, but not so far that the cyclic comparison wraps around.
inline constexpr uint32_t kFarAhead = 1U << 30;

struct GateKernel;      // wait_kernels.h
struct ExchangeKernel;  // wait_kernels.h

// The groups of a GPU that wait by kernels, in the order of their launch.
struct GroupStarts {
  std::mutex mutex;  // held while a group launches its kernels and copies
  uint64_t last = 0;
};

// Enqueues operations in CUDA streams. Every function returns at once. Functions that enqueue work
// return false if CUDA refuses; then nothing was enqueued. The operations of one stream run in
// order.
class Driver {
 public:
  virtual ~Driver() = default;

  // Creates a nonblocking stream. Returns null if CUDA refuses.
  virtual Stream NewStream() = 0;
  virtual void DeleteStream(Stream stream) = 0;
  virtual Event NewEvent() = 0;
  virtual void DeleteEvent(Event event) = 0;

  virtual bool Record(Event event, Stream stream) = 0;
  // Makes `stream` wait until the work before the last Record of `event` is complete.
  virtual bool WaitEvent(Stream stream, Event event) = 0;

  // Copies by the copy engine of the stream's GPU. Either address may be a peer's memory.
  virtual bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  // A reader that sees the value also sees all earlier writes of the stream.
  virtual bool WriteValue(Stream stream, Flag& flag, uint32_t value) = 0;
  virtual bool WaitValue(Stream stream, Flag& flag, uint32_t value) = 0;

  virtual bool Capturing(Stream stream) = 0;

  // The functions below are used only with Policy::kernel_waits (route.h).
  virtual GroupStarts& starts() = 0;
  virtual bool LaunchGate(Stream stream, const GateKernel& gate) = 0;
  virtual bool LaunchExchange(Stream stream, const ExchangeKernel& exchange) = 0;
  virtual bool IsComplete(Stream stream) = 0;
  // Returns whether the stream has the priority of the streams that NewStream creates.
  virtual bool HasDefaultPriority(Stream stream) = 0;
};

// One operation that a plan enqueues in a stream.
struct Operation {
  enum class Kind : uint8_t {
    kWrite,
    kWait,
    kCopy,
    kFork,  // `stream` waits for the work that is in `other` at this point
    kMark,  // records an event in `stream`, which kJoin waits for
    kJoin,  // the application's stream waits for the last kMark of `stream`
  };
  Kind kind = Kind::kWrite;
  size_t stream = 0;  // index in Plan::streams
  size_t other = 0;
  Flag* flag = nullptr;
  uint32_t value = 0;
  DeviceAddress to = 0;
  DeviceAddress from = 0;
  uint64_t bytes = 0;
};

}  // namespace nccltune::sendrecv
