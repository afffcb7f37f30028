// SPDX-License-Identifier: Apache-2.0
//
// Takes the place of everything below the plugin: the transport, the devices and the settings. It
// answers what it is told to and keeps what it was asked.
#ifndef NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_
#define NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "abi/nccl_types.h"
#include "net/device.h"
#include "net/request.h"
#include "net/transport.h"

namespace nccltune::net {

class Listener {};
class Sender {};
class Receiver {};

struct StandIn {
  enum class Throws { kNothing, kBadAlloc, kRuntimeError, kNumber };

  // To be answered.
  abi::Result result = abi::kSuccess;
  bool ready = true;  // there is a connection, a request, an end of it
  size_t transferred = 0;
  std::deque<Device> devices;
  int plain = 0;  // of the devices
  int told = 0;   // of the devices
  Throws devices_throw = Throws::kNothing;
  std::string no_virtual_device;  // why not
  std::vector<std::string> setting_problems;

  // Given out.
  Listener listener;
  Sender sender;
  Receiver receiver;
  Request request;

  // Asked.
  std::optional<Surroundings> surroundings;
  const Device* device = nullptr;
  std::byte* handle = nullptr;
  const void* asked_of = nullptr;
  const void* data = nullptr;
  size_t bytes = 0;
  std::vector<int> members;
  int calls = 0;  // of the transport
  int forgotten = 0;
  std::vector<const void*> closed;
};

// Of the whole program, as the parts that it replaces.
StandIn& TheStandIn();

// Two devices: eth0 on a PCI bus and eth1 on none.
void ResetStandIn();

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_
