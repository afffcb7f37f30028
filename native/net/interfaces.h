// SPDX-License-Identifier: Apache-2.0
//
// The NICs of this host as NCCL counts them, with what the kernel says about each.
#ifndef NCCLTUNE_NET_INTERFACES_H_
#define NCCLTUNE_NET_INTERFACES_H_

#include <span>
#include <string>
#include <vector>

#include "net/device.h"
#include "net/interface_filter.h"

namespace nccltune::net {

// As NCCL takes a NIC of which the kernel does not know the speed.
inline constexpr int kUnknownSpeedMbps = 10000;

// Every address of every interface; empty where the kernel does not say.
std::vector<InterfaceAddress> ListInterfaceAddresses();

// What stands in sysfs about an interface. A virtual function is described by its own folder, not
// by that of its physical function, as NCCL's socket transport does.
Nic DescribeNic(const InterfaceAddress& interface, const std::string& sysfs = "/sys");

// The NICs that NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY of the environment choose.
std::vector<Nic> FindNics(std::span<const InterfaceAddress> addresses,
                          const std::string& sysfs = "/sys");
std::vector<Nic> FindNics();

// Whether its folder in sysfs is that of a PCI function. NCCL places all others together at the
// first CPU.
bool IsPciFunction(const Nic& nic);

// 10.0.0.1, fe80::1%2
std::string AddressText(const Address& address);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_INTERFACES_H_
