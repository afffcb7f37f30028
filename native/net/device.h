// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_DEVICE_H_
#define NCCLTUNE_NET_DEVICE_H_

#include <netinet/in.h>

#include <cstdint>
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

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DEVICE_H_
