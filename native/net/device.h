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
  std::string name;  // eth0
  Address address;
  std::string pci_path;  // its directory in sysfs; empty if the NIC is virtual
  std::string driver;    // gve, ena, mlx5_core; empty if the NIC is virtual
  int speed_mbps = 0;    // 10000 if the kernel does not report it, as in NCCL
  int mtu = 0;
};

// A device as NCCL sees it: one NIC, or several merged into one.
struct Device {
  std::string name;  // unique; eth0, or eth0+eth1
  std::string pci_path;
  uint64_t guid = 0;
  int speed_mbps = 0;  // sum over the NICs
  std::vector<Nic> nics;
  std::vector<int> members;  // devices that were merged into it; for a plain device, itself
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DEVICE_H_
