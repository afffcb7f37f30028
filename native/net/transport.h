// SPDX-License-Identifier: Apache-2.0
//
// Connections, independent of the interface version. The adapters call these functions through
// plugin.h.
//
// These functions throw no exception. Failures are logged once, with the reason. Two wrong calls
// fail without a log line: an accept after the communicator has ended, and a connect whose handle
// names an unknown attempt or the attempt of another listener. After a connection has failed, every
// later call on it returns the same result.
#ifndef NCCLTUNE_NET_TRANSPORT_H_
#define NCCLTUNE_NET_TRANSPORT_H_

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"
#include "common/log.h"
#include "net/device.h"
#include "net/handle.h"
#include "net/net_settings.h"

namespace nccltune::net {

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

#endif  // NCCLTUNE_NET_TRANSPORT_H_
