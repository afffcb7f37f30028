// SPDX-License-Identifier: Apache-2.0
//
// Replaces everything below the plugin functions: transport, devices and settings. It returns
// configured answers and records the calls.
#ifndef NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_
#define NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "abi/nccl_types.h"
#include "net/device_table.h"
#include "net/transport.h"

namespace nccltune::net {

class Listener {};
class Sender {};
class Receiver {};

struct StandIn {
  enum class Throws { kNothing, kBadAlloc, kRuntimeError, kNumber };

  // Configured answers:
  abi::Result result = abi::kSuccess;
  bool ready = true;  // whether calls return connections, requests and completions at once
  size_t transferred = 0;
  std::deque<Device> devices;
  int plain = 0;    // number of plain devices
  int visible = 0;  // number of devices visible to NCCL
  Throws devices_throw = Throws::kNothing;
  std::string no_virtual_device;  // error of making a virtual device
  std::vector<std::string> setting_problems;

  // Objects that are returned:
  Listener listener;
  Sender sender;
  Receiver receiver;
  TransferRequest request;

  // Recorded arguments:
  std::optional<ConnectionContext> context;
  const Device* device = nullptr;
  std::byte* handle = nullptr;
  const void* asked_of = nullptr;
  const void* data = nullptr;
  size_t bytes = 0;
  std::vector<int> members;
  int calls = 0;  // calls of the transport
  int forgotten = 0;
  std::vector<const void*> closed;
  std::vector<uint64_t> released;  // released owners
};

// Returns the instance of the program.
StandIn& TheStandIn();

// Two devices: eth0 on a PCI bus and eth1 on none.
void ResetStandIn();

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_TRANSPORT_STAND_IN_H_
