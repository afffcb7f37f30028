// SPDX-License-Identifier: Apache-2.0
//
// What send/recv needs of CUDA, so that the protocol runs on GPUs and, in tests, without any.
#ifndef NCCLTUNE_SENDRECV_DRIVER_H_
#define NCCLTUNE_SENDRECV_DRIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nccltune::sendrecv {

using Stream = void*;            // CUstream
using Event = void*;             // CUevent
using DeviceAddress = uint64_t;  // CUdeviceptr

// In memory that all processes of a pair and their GPUs see (pinned, shared).
using Flag = std::atomic<uint32_t>;

// A flag has reached a value. Cyclic, as CU_STREAM_WAIT_VALUE_GEQ compares.
inline bool Reached(uint32_t flag, uint32_t value) {
  return static_cast<int32_t>(flag - value) >= 0;
}

// Calls are those of the current device's context and come back at once; false: CUDA refused, and
// nothing was enqueued. What is enqueued in a stream runs in order.
class Driver {
 public:
  virtual ~Driver() = default;

  // A stream of our own, which no other stream waits for by itself; null where CUDA refused.
  virtual Stream NewStream() = 0;
  virtual void DeleteStream(Stream stream) = 0;
  virtual Event NewEvent() = 0;
  virtual void DeleteEvent(Event event) = 0;

  virtual bool Record(Event event, Stream stream) = 0;
  // `stream` goes on when what `event` recorded last has run.
  virtual bool WaitEvent(Stream stream, Event event) = 0;

  // By the copy engine of the stream's GPU. Either end may be memory of a peer.
  virtual bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  // All that the stream did before is seen by whoever sees the value.
  virtual bool WriteValue(Stream stream, Flag& flag, uint32_t value) = 0;
  virtual bool WaitValue(Stream stream, Flag& flag, uint32_t value) = 0;

  // A graph is being captured: nothing may be decided here.
  virtual bool Capturing(Stream stream) = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_DRIVER_H_
