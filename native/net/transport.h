// SPDX-License-Identifier: Apache-2.0
// Connections, independent of the interface version. The adapters call these functions through
// plugin.h.
//
// These functions throw no exception. Failures are logged once, with the reason. Two wrong calls
// fail without a log line: an accept after the communicator has ended, and a connect whose handle
// names an unknown attempt or the attempt of another listener. After a connection has failed, every
// later call on it returns the same result.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"
#include "common/log.h"
#include "net/clock.h"
#include "net/device_table.h"
#include "net/net_settings.h"
#include "net/wire.h"

namespace nccltune::net {

class Sender;
class Receiver;

// Size of a cache line. Data that several threads write should not share a cache line with data
// that others read.
inline constexpr size_t kCacheLine = 64;

// NCCL's limit of outstanding requests on one connection (NCCL_NET_MAX_REQUESTS since 2.19).
inline constexpr size_t kMostRequests = 32;
// Number of slots of a connection. There are more slots than requests: a message that NCCL has seen
// complete keeps its slot until the peer acknowledges the message.
inline constexpr size_t kSlots = 128;

// Detects that at least kDeep requests were outstanding within the last millisecond. NCCL then does
// not wait for a single request. NCCL has up to eight requests outstanding on a connection, one per
// step of its operation.
class RequestDepth {
 public:
  // Records that `held` requests are outstanding. The caller holds the connection's lock.
  void RecordHeld(size_t held) {
    if (held >= kDeep) deep_ns_.store(NowNs(), std::memory_order_relaxed);
  }
  bool IsDeep(int64_t now_ns) const {
    return now_ns - deep_ns_.load(std::memory_order_relaxed) < kNsPerMs;
  }

 private:
  static constexpr size_t kDeep = 6;
  std::atomic<int64_t> deep_ns_ = -kNsPerSecond;
};

// A request. NCCL holds a pointer to it while the transfer runs. This struct is the base of
// SendSlot and ReceiveSlot.
struct TransferRequest {
  Sender* sender = nullptr;  // set for a send; else `receiver` is set
  Receiver* receiver = nullptr;
  uint64_t number = 0;
  // Set when the data has been received, delivered or copied, and neither our threads nor the
  // kernel use the application's buffer any more.
  std::atomic<bool> complete = false;
};

class Listener;
class Sender;
class Receiver;
struct TransferRequest;

// The settings and the logger of a communicator's connections.
struct ConnectionContext {
  NetSettings settings;
  Log log;
  // NCCL's traffic class; negative if none is set.
  int traffic_class = -1;
  // Number of the communicator, for Release. kProcess if the communicator is unknown, as in
  // interfaces before v11.
  static constexpr uint64_t kProcess = 0;
  uint64_t owner = kProcess;
};

// Returns a new value for ConnectionContext::owner.
uint64_t NewOwner() noexcept;

// Called when a communicator ends. Cancels the communicator's incomplete connects. Its open
// listeners accept no new connection any more and release their resources. NCCL may still close
// these listeners later.
void Release(uint64_t owner) noexcept;

// Cancels connects without an owner that NCCL has not continued for a minute. NCCL never continues
// the connects of an aborted communicator. Called by Listen, Connect, Accept and Close.
void ReleaseForgotten(int64_t now_ns) noexcept;

// Listens on every NIC of `device` that has the address family of the first NIC. Fills `handle`,
// with which a peer connects.
abi::Result Listen(const ConnectionContext& context, const Device& device, Handle handle,
                   Listener** listener) noexcept;

// Starts or continues a connect; never blocks. `*sender` is null until the connection is
// established. Until then NCCL calls again with the same handle, which contains the number of the
// attempt.
abi::Result Connect(const ConnectionContext& context, const Device& device, Handle handle,
                    Sender** sender) noexcept;

// Accepts a connection; never blocks. `*receiver` is null until a peer has connected.
abi::Result Accept(Listener* listener, Receiver** receiver) noexcept;

// Starts a send. `*request` is null if 32 requests are outstanding or no slot is free. NCCL then
// calls again later. The same is true for Receive.
abi::Result Send(Sender* sender, const void* data, size_t bytes,
                 TransferRequest** request) noexcept;
abi::Result Receive(Receiver* receiver, void* data, size_t bytes,
                    TransferRequest** request) noexcept;

// Tests a request. When `*done` is set, `*bytes` is the transferred size and the request is no
// longer valid. Requests may be tested in any order. `bytes` may be null.
abi::Result Test(TransferRequest* request, bool* done, size_t* bytes) noexcept;

// Close a listener or an end of a connection. Null is ignored. Completed sends are still delivered;
// incomplete requests are cancelled.
abi::Result Close(Listener* listener) noexcept;
abi::Result Close(Sender* sender) noexcept;
abi::Result Close(Receiver* receiver) noexcept;

}  // namespace nccltune::net
