// SPDX-License-Identifier: Apache-2.0
// The devices that NCCL sees. First come the NICs of this host; each NIC may appear as several
// devices. Then come virtual devices, each of which merges several NICs at NCCL's request.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace nccltune::net {

// An address of a NIC, without a port: AF_INET or AF_INET6 (with its scope).
struct Address {
  sockaddr_storage storage = {};

  int family() const { return storage.ss_family; }
};

// A network interface of this host.
struct Nic {
  std::string name;  // such as "eth0"
  Address address;
  std::string pci_path;  // the device's directory in sysfs; empty for a bridge or tunnel
  std::string driver;    // such as "mlx5_core"; empty if `pci_path` is empty
  int speed_mbps = 0;    // 10000 if the kernel does not report it, as in NCCL
  int mtu = 0;
};

// A device as NCCL sees it: one NIC, or several NICs merged into one device.
struct Device {
  std::string name;  // unique, such as "eth0", "eth0/1" or "eth0+eth1"
  std::string pci_path;
  uint64_t guid = 0;
  int speed_mbps = 0;  // sum over the NICs
  std::vector<Nic> nics;
  std::vector<int> members;  // indices of the merged devices; for one NIC, the device's own index
};

// Most NICs in one virtual device: 8 in the newest interface (v12), 4 in v9 to v11.
inline constexpr size_t kMostMembers = 8;

// Returns the number of devices per NIC. The number is NCCLTUNE_NET_DEVICES if it is set; else 1 if
// the user asks NCCL to merge NICs, because devices of the same NIC are never merged; else a number
// that suits `nics` NICs. NCCL makes two channels for a device, and a channel waits for its peer
// between two bursts. With four devices, other channels transfer in the meantime.
int DevicesEach(size_t nics);

// The table of devices. Thread-safe. Devices live as long as the table, because NCCL keeps pointers
// to their strings.
class DeviceTable {
 public:
  // Returns the table of the process, which is created at the first call and never destroyed.
  static DeviceTable& Get();

  // Each NIC appears as `devices_each` devices that share the NIC's speed. The order is: all NICs,
  // then all NICs again.
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

  // Returns the index of the virtual device that merges `members`. The same members in any order
  // give the same index. For a single member, returns that member. Returns -1 and sets `*error` if
  // the members cannot be merged.
  //
  // NICs that are not PCI functions (virtio, bridges, tunnels) are merged only if
  // NCCL_NET_FORCE_MERGE or NCCL_NET_MERGE_LEVEL is set. NCCL places all of them under the first
  // CPU, takes them for ports of one card, and would merge them by default.
  int MakeVirtual(std::span<const int> members, std::string* error);

  // Hides the virtual devices. Called when the last communicator has ended (interface v11 and
  // later), or at init (older interfaces). NCCL unloads the plugin after its last communicator, but
  // the plugin's code stays in memory (it is linked with `-z nodelete`). If NCCL loads the plugin
  // again, NCCL counts the devices again and must not take virtual devices for NICs. Old indices
  // stay valid, because NCCL keeps using them if NCCL_NET_PLUGIN_REF_COUNT is 1.
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
