// SPDX-License-Identifier: Apache-2.0
#include "net/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "net/kernel_facts.h"

namespace nccltune::net {
namespace {

using std::string_view_literals::operator""sv;

// The default filters. If the user names no interfaces, NCCL tries the filters in this order until
// one matches. NCCL skips virbr since 2.28.
constexpr std::array kDefaultLists = {"ib"sv, "^docker,lo,virbr"sv, "docker"sv, "lo"sv, "virbr"sv};

// Returns the family that NCCL_SOCKET_FAMILY names. For any other word, returns AF_UNSPEC, as NCCL
// does: any family is accepted.
int FamilyOf(std::string_view word) {
  if (word == "AF_INET") return AF_INET;
  if (word == "AF_INET6") return AF_INET6;
  return AF_UNSPEC;
}

bool IsLoopbackV6(const Address& address) {
  if (address.family() != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address.storage, sizeof(v6));
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

std::vector<InterfaceAddress> Choose(std::span<const InterfaceAddress> all,
                                     const InterfaceFilter& filter, int family) {
  std::vector<InterfaceAddress> chosen;
  for (const InterfaceAddress& one : all) {
    if (chosen.size() == kMostInterfaces) break;
    const int its = one.address.family();
    if (its != AF_INET && its != AF_INET6) continue;
    if (family != AF_UNSPEC && its != family) continue;
    if (!one.running || IsLoopbackV6(one.address) || !filter.Takes(one.name)) continue;
    // Skip further addresses of an interface: NCCL uses the first one. The kernel lists IPv4
    // addresses first, then global IPv6, then link-local ones.
    if (std::any_of(chosen.begin(), chosen.end(),
                    [&one](const InterfaceAddress& other) { return other.name == one.name; })) {
      continue;
    }
    chosen.push_back(one);
  }
  return chosen;
}

struct FreeDeleter {
  void operator()(char* text) const { std::free(text); }  // NOLINT: realpath calls malloc
};

// Returns the path with links resolved, or empty if it does not exist.
std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, FreeDeleter> resolved(realpath(path.c_str(), nullptr));
  return resolved == nullptr ? std::string() : std::string(resolved.get());
}

std::string_view LastPart(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Returns the speed in Mb/s, or kUnknownSpeedMbps if the kernel does not know it. Kernels then
// report -1, 4294967295, nothing or an error.
int SpeedOf(const std::string& folder) {
  const std::optional<uint64_t> speed = ReadKernelNumber(folder + "/speed");
  if (!speed || *speed == 0 || *speed > INT_MAX) return kUnknownSpeedMbps;
  return static_cast<int>(*speed);
}

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool IsHex(std::string_view digits) {
  return !digits.empty() && digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

}  // namespace

std::vector<InterfaceAddress> ListInterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_name == nullptr) continue;
    InterfaceAddress address;
    switch (one->ifa_addr->sa_family) {
      case AF_INET:
        std::memcpy(&address.address.storage, one->ifa_addr, sizeof(sockaddr_in));
        break;
      case AF_INET6:
        std::memcpy(&address.address.storage, one->ifa_addr, sizeof(sockaddr_in6));
        break;
      default:
        continue;
    }
    address.name = one->ifa_name;
    address.running = (one->ifa_flags & IFF_RUNNING) != 0;
    addresses.push_back(std::move(address));
  }
  return addresses;
}

Nic DescribeNic(const InterfaceAddress& interface, const std::string& sysfs) {
  const std::string folder = sysfs + "/class/net/" + interface.name;
  Nic nic;
  nic.name = interface.name;
  nic.address = interface.address;
  nic.pci_path = RealPath(folder + "/device");
  if (!nic.pci_path.empty()) nic.driver = LastPart(RealPath(folder + "/device/driver"));
  nic.speed_mbps = SpeedOf(folder);
  const std::optional<uint64_t> mtu = ReadKernelNumber(folder + "/mtu");
  nic.mtu = mtu && *mtu <= INT_MAX ? static_cast<int>(*mtu) : 0;
  return nic;
}

std::vector<Nic> FindNics(std::span<const InterfaceAddress> addresses, const std::string& sysfs) {
  std::vector<Nic> nics;
  for (const InterfaceAddress& interface : ChooseInterfaces(
           addresses, Variable("NCCL_SOCKET_IFNAME"), Variable("NCCL_SOCKET_FAMILY"))) {
    nics.push_back(DescribeNic(interface, sysfs));
  }
  return nics;
}

std::vector<Nic> FindNics() { return FindNics(ListInterfaceAddresses()); }

bool IsPciFunction(const Nic& nic) {
  // A PCI function is named dddd:bb:dd.f. The domain (dddd) of some hosts has more digits.
  const std::string_view name = LastPart(nic.pci_path);
  const size_t length = name.size();
  if (length < 12) return false;
  const std::string_view tail = name.substr(length - 8);
  return IsHex(name.substr(0, length - 8)) && tail[0] == ':' && IsHex(tail.substr(1, 2)) &&
         tail[3] == ':' && IsHex(tail.substr(4, 2)) && tail[6] == '.' && IsHex(tail.substr(7));
}

std::string AddressText(const Address& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.family() == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address.storage, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return text.data();
  }
  if (address.family() != AF_INET6) return "no address";
  sockaddr_in6 v6;
  std::memcpy(&v6, &address.storage, sizeof(v6));
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  std::string shown = text.data();
  if (v6.sin6_scope_id != 0) shown += "%" + std::to_string(v6.sin6_scope_id);
  return shown;
}

InterfaceFilter::InterfaceFilter(std::string_view list) {
  exclude_ = list.starts_with('^');
  if (exclude_) list.remove_prefix(1);
  whole_ = list.starts_with('=');
  if (whole_) list.remove_prefix(1);
  while (!list.empty() && entries_.size() < kMostInterfaces) {
    const size_t comma = list.find(',');
    const std::string_view entry = list.substr(0, comma);
    const std::string_view name = entry.substr(0, entry.find(':'));
    if (!name.empty()) entries_.emplace_back(name);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
}

bool InterfaceFilter::Takes(std::string_view name) const { return Listed(name) != exclude_; }

bool InterfaceFilter::Listed(std::string_view name) const {
  // An empty list matches every interface.
  if (entries_.empty()) return true;
  return std::any_of(entries_.begin(), entries_.end(), [this, name](const std::string& entry) {
    return whole_ ? name == entry : name.starts_with(entry);
  });
}

std::vector<InterfaceAddress> ChooseInterfaces(std::span<const InterfaceAddress> all,
                                               std::string_view names, std::string_view family) {
  const int wanted = FamilyOf(family);
  // NCCL ignores a value with fewer than two characters.
  if (names.size() > 1) return Choose(all, InterfaceFilter(names), wanted);
  for (const std::string_view list : kDefaultLists) {
    std::vector<InterfaceAddress> chosen = Choose(all, InterfaceFilter(list), wanted);
    if (!chosen.empty()) return chosen;
  }
  return {};
}

}  // namespace nccltune::net
