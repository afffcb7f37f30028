// SPDX-License-Identifier: Apache-2.0
//
// Which network interfaces NCCL uses, by the rules of its own socket transport (src/misc/socket.cc,
// src/misc/utils.cc and, since 2.29, src/os/linux.cc; those of 2.28 to 2.30). Pure.
#ifndef NCCLTUNE_NET_INTERFACE_FILTER_H_
#define NCCLTUNE_NET_INTERFACE_FILTER_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/device.h"

namespace nccltune::net {

// As many interfaces, and as many entries of a list, as NCCL takes.
inline constexpr size_t kMostInterfaces = 16;

// A list as in NCCL_SOCKET_IFNAME: "eth,ib0" names what interfaces begin with, "=eth0" whole names,
// "^docker" and "^=docker0" what is left out. Blanks count, case counts, and what follows a colon
// in an entry is a port, which interfaces do not have.
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

// One address of an interface, as the kernel lists them.
struct InterfaceAddress {
  std::string name;
  Address address;
  bool running = true;  // IFF_RUNNING: up, and something is at the other end
};

// The interfaces that NCCL would use, in the kernel's order, each with the first of its addresses
// that counts. `names` and `family` are the values of NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY,
// empty where they are not set. Where names are given and none is found there is no second choice.
//
// NCCL_COMM_ID, by which NCCL prefers an interface in the subnet of that address when no
// InfiniBand interface is there, is not looked at.
std::vector<InterfaceAddress> ChooseInterfaces(std::span<const InterfaceAddress> all,
                                               std::string_view names, std::string_view family);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_INTERFACE_FILTER_H_
