// SPDX-License-Identifier: Apache-2.0
//
// The devices that NCCL sees: the NICs of this host, each possibly several times, then the virtual
// devices that NCCL asked for.
#ifndef NCCLTUNE_NET_DEVICE_TABLE_H_
#define NCCLTUNE_NET_DEVICE_TABLE_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "net/device.h"

namespace nccltune::net {

// The most members that the newest interface (v12) allows; v9 to v11 allow 4.
inline constexpr size_t kMostMembers = 8;

// Returns the number of devices per NIC if no setting names one. NCCL makes two channels for a
// device, and a channel waits for its peer between two bursts. With four devices, other channels
// transfer in the meantime. One device per NIC if NCCL is asked to merge NICs: devices of the same
// NIC are never merged.
int DevicesEach(size_t nics);

// The table of devices. Thread-safe. Devices and their strings live as long as the table, because
// NCCL keeps pointers to them.
class DeviceTable {
 public:
  // Returns the table of the process. It is filled at the first call and never destroyed.
  static DeviceTable& Get();

  // Each NIC appears as `devices_each` devices that share its speed. The order is: all NICs, then
  // all NICs again.
  explicit DeviceTable(std::vector<Nic> nics, int devices_each = 1);
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  std::vector<Nic> nics() const;

  // Returns the number of devices for NCCL: the plain ones and the virtual ones made since the last
  // ForgetVirtual.
  int size() const;

  // Returns the device, or null if the index is unknown. Virtual devices from before ForgetVirtual
  // are still found.
  const Device* Find(int index) const;

  // Returns the index of one device made of `members`. The same set in any order gives the same
  // index, and a single member gives itself. Returns -1 and sets `*error` if they cannot be merged.
  //
  // NICs that are not PCI functions are merged only if NCCL_NET_FORCE_MERGE or NCCL_NET_MERGE_LEVEL
  // is set. NCCL places all of them (virtio, bridges, tunnels) under the first CPU, takes them for
  // ports of one card, and would merge them by default.
  int MakeVirtual(std::span<const int> members, std::string* error);

  // Hides the virtual devices when the last communicator has ended (known since v11). NCCL then
  // unloads the plugin, but its code stays in memory (-z nodelete). If NCCL loads it again, it
  // counts the devices again and must not take virtual ones for NICs. Old indices stay valid,
  // because NCCL keeps using them with NCCL_NET_PLUGIN_REF_COUNT=1.
  void ForgetVirtual();

 private:
  std::string WhyNotMergeable(std::span<const int> members) const;

  mutable std::mutex mutex_;
  const std::vector<Nic> nics_;
  const size_t plain_;  // number of devices with a single NIC
  size_t visible_;      // number of devices visible to NCCL
  std::vector<const Device*> devices_;
  std::vector<std::unique_ptr<const Device>> owned_;  // includes virtual devices that were replaced
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DEVICE_TABLE_H_
