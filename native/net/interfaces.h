// SPDX-License-Identifier: Apache-2.0
// The NICs of this host as NCCL counts them, with their properties from the kernel. The rules are
// those of NCCL's built-in socket transport, 2.28 to 2.30 (src/misc/socket.cc, src/misc/utils.cc
// and, since 2.29, src/os/linux.cc).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/device_table.h"

namespace nccltune::net {

// NCCL's limit for interfaces and for entries of a list.
inline constexpr size_t kMostInterfaces = 16;

// A filter with the syntax of NCCL_SOCKET_IFNAME. "eth,ib0" matches prefixes of names, and "=eth0"
// matches whole names. "^docker" and "^=docker0" exclude interfaces. Blanks and case are
// significant. A colon in an entry starts a port, which is ignored because interfaces have none.
class InterfaceFilter {
 public:
  explicit InterfaceFilter(std::string_view list);

  bool Takes(std::string_view name) const;

 private:
  bool Listed(std::string_view name) const;

  bool exclude_ = false;
  bool whole_ = false;
  std::vector<std::string> entries_;
};

// One address of an interface, from the kernel's list.
struct InterfaceAddress {
  std::string name;
  Address address;
  bool running = true;  // IFF_RUNNING: up, with a carrier
};

// Returns the interfaces that NCCL would use, in the kernel's order, each with its first usable
// address. `names` and `family` are the values of NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, or
// empty if not set. If names are given and no interface matches, the result is empty.
//
// NCCL_COMM_ID is ignored. NCCL uses NCCL_COMM_ID to prefer an interface in the same subnet if
// there is no InfiniBand interface.
std::vector<InterfaceAddress> ChooseInterfaces(std::span<const InterfaceAddress> all,
                                               std::string_view names, std::string_view family);

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
