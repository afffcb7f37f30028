// SPDX-License-Identifier: Apache-2.0
#include "net/interface_filter.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

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

}  // namespace

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
