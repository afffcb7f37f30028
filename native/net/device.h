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
  std::string pci_path;  // its folder in sysfs; empty: virtual
  std::string driver;    // gve, ena, mlx5_core; empty: virtual
  int speed_mbps = 0;    // 10000 where the kernel does not say, as NCCL takes it
  int mtu = 0;
};

// What NCCL sees as a device: one NIC, or several as one.
struct Device {
  std::string name;  // unique; eth0, or eth0+eth1
  std::string pci_path;
  uint64_t guid = 0;
  int speed_mbps = 0;  // the sum
  std::vector<Nic> nics;
  std::vector<int> members;  // devices that it was made of; itself for a plain one
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DEVICE_H_
