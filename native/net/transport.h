// SPDX-License-Identifier: Apache-2.0
//
// Connections, in no interface version's words: what the adapters call through plugin.h.
//
// Nothing here throws. A result other than kSuccess was said in the log, with the peer and why; of
// a connection it is final: every later call gives the same.
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
struct Request;

// What every connection of a communicator is made with.
struct Surroundings {
  NetSettings settings;
  Log log;
  // NCCL's traffic class; negative: none.
  int traffic_class = -1;
};

// Listens on every NIC of `device`; `handle` is what a peer connects by.
abi::Result Listen(const Surroundings& surroundings, const Device& device, Handle handle,
                   Listener** listener) noexcept;

// Never waits: `*sender` is null until the connection stands, and the call is to be made again with
// the same handle, in which the state of the attempt is kept.
abi::Result Connect(const Surroundings& surroundings, const Device& device, Handle handle,
                    Sender** sender) noexcept;

// Never waits: `*receiver` is null until a peer is there.
abi::Result Accept(Listener* listener, Receiver** receiver) noexcept;

// `*request` is null where the call is to be made again later: 32 are outstanding.
abi::Result Send(Sender* sender, const void* data, size_t bytes, Request** request) noexcept;
abi::Result Receive(Receiver* receiver, void* data, size_t bytes, Request** request) noexcept;

// `*bytes` is what was transferred; it is set when `*done` is, after which the request is gone.
// Requests may be tested in any order. `bytes` may be null.
abi::Result Test(Request* request, bool* done, size_t* bytes) noexcept;

// Null is closed already. What was completed is still delivered; what was not is given up.
abi::Result Close(Listener* listener) noexcept;
abi::Result Close(Sender* sender) noexcept;
abi::Result Close(Receiver* receiver) noexcept;

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_TRANSPORT_H_
