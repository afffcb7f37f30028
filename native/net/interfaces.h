// SPDX-License-Identifier: Apache-2.0
//
// The NICs of this host as NCCL counts them, with their properties from the kernel.
#ifndef NCCLTUNE_NET_INTERFACES_H_
#define NCCLTUNE_NET_INTERFACES_H_

#include <span>
#include <string>
#include <vector>

#include "net/device.h"
#include "net/interface_filter.h"

namespace nccltune::net {

// The speed that NCCL assumes if the kernel does not report one.
inline constexpr int kUnknownSpeedMbps = 10000;

// Returns every IPv4 and IPv6 address of every interface; empty if the kernel call fails.
std::vector<InterfaceAddress> ListInterfaceAddresses();

// Returns an interface's properties from sysfs. For an SR-IOV virtual function, `pci_path` is the
// directory of the virtual function and not of the physical one, as in NCCL's built-in socket
// transport.
Nic DescribeNic(const InterfaceAddress& interface, const std::string& sysfs = "/sys");

// Return the NICs that the environment variables NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY select.
std::vector<Nic> FindNics(std::span<const InterfaceAddress> addresses,
                          const std::string& sysfs = "/sys");
std::vector<Nic> FindNics();

// Returns whether the NIC's directory in sysfs belongs to a PCI function. NCCL places all other
// NICs at the first CPU.
bool IsPciFunction(const Nic& nic);

// Returns the address as text: "10.0.0.1", "fe80::1%2", or "no address" for another family.
std::string AddressText(const Address& address);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_INTERFACES_H_
