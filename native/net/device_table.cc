// SPDX-License-Identifier: Apache-2.0
#include "net/device_table.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/content_hash.h"
#include "common/text.h"
#include "net/interfaces.h"
#include "net/kernel_facts.h"
#include "net/net_settings.h"

namespace nccltune::net {
namespace {

// Returns an id of the NIC. The id is the same in every process of a host: NCCL recognises the NIC
// when several ranks describe it. The id differs between hosts, because NCCL merges the topologies
// of several hosts.
uint64_t GuidOf(const Nic& nic) {
  return ContentHash(nic.name + '\n' + nic.pci_path + '\n' + AddressText(nic.address));
}

// Makes device number `copy` of a NIC that appears as `copies` devices.
Device PlainDevice(Nic nic, int index, int copy, int copies) {
  Device device;
  device.name = nic.name;
  device.guid = GuidOf(nic);
  // An interface name cannot contain a slash, so the device's name is unique.
  if (copy > 0) {
    device.name += '/' + std::to_string(copy);
    device.guid = ContentHash(device.name + Hex64(device.guid));
  }
  device.pci_path = nic.pci_path;
  device.speed_mbps = std::max(nic.speed_mbps / copies, 1);
  device.nics.push_back(std::move(nic));
  device.members = {index};
  return device;
}

Device VirtualDevice(std::span<const Device* const> members) {
  Device device;
  std::string guids;
  int64_t speed = 0;
  for (const Device* const member : members) {
    if (!device.name.empty()) device.name += '+';
    device.name += member->name;
    guids += Hex64(member->guid);
    speed += member->speed_mbps;
    device.nics.push_back(member->nics.front());
    device.members.push_back(member->members.front());
  }
  device.pci_path = members.front()->pci_path;
  device.guid = ContentHash(guids);
  device.speed_mbps = static_cast<int>(std::min<int64_t>(speed, INT_MAX));
  return device;
}

bool IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::string_view FamilyName(const Nic& nic) {
  return nic.address.family() == AF_INET6 ? "IPv6" : "IPv4";
}

bool MergeIsAsked() { return IsSet("NCCL_NET_FORCE_MERGE") || IsSet("NCCL_NET_MERGE_LEVEL"); }

bool SameSet(std::span<const int> one, std::span<const int> other) {
  return std::ranges::is_permutation(one, other);
}

}  // namespace

int DevicesEach(size_t nics) {
  // The warnings are ignored here: plugin.cc reads all settings and logs the warnings.
  std::vector<std::string> warnings;
  const int wanted = ReadNetSettings(&warnings).devices;
  if (wanted != 0) return wanted;
  return MergeIsAsked() ? 1 : DevicesOfNic(nics);
}

DeviceTable& DeviceTable::Get() {
  // The table is never destroyed: NCCL may call the plugin during process exit.
  static DeviceTable* const table = [] {
    std::vector<Nic> nics = FindNics();
    const int each = DevicesEach(nics.size());
    return new DeviceTable(std::move(nics), each);
  }();
  return *table;
}

DeviceTable::DeviceTable(std::vector<Nic> nics, int devices_each)
    : nics_(std::move(nics)),
      plain_(nics_.size() * static_cast<size_t>(devices_each)),
      visible_(plain_) {
  for (int copy = 0; copy < devices_each; ++copy) {
    for (const Nic& nic : nics_) {
      const int index = static_cast<int>(owned_.size());
      owned_.push_back(std::make_unique<const Device>(PlainDevice(nic, index, copy, devices_each)));
      devices_.push_back(owned_.back().get());
    }
  }
}

std::vector<Nic> DeviceTable::nics() const { return nics_; }

int DeviceTable::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(visible_);
}

const Device* DeviceTable::Find(int index) const {
  const std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= devices_.size()) return nullptr;
  return devices_[static_cast<size_t>(index)];
}

int DeviceTable::MakeVirtual(std::span<const int> members, std::string* error) {
  const std::lock_guard lock(mutex_);
  *error = WhyNotMergeable(members);
  if (!error->empty()) return -1;
  if (members.size() == 1) return members.front();
  // NCCL knows the devices below `visible_`. Also compare the first hidden device: after
  // ForgetVirtual, NCCL asks for the same devices again, in the same order, and must get the same
  // indices.
  const size_t known = std::min(visible_ + 1, devices_.size());
  for (size_t index = plain_; index < known; ++index) {
    if (!SameSet(devices_[index]->members, members)) continue;
    visible_ = std::max(visible_, index + 1);
    return static_cast<int>(index);
  }
  std::vector<const Device*> member_devices;
  member_devices.reserve(members.size());
  for (const int member : members) member_devices.push_back(devices_[static_cast<size_t>(member)]);
  owned_.push_back(std::make_unique<const Device>(VirtualDevice(member_devices)));
  if (visible_ < devices_.size()) {
    devices_[visible_] = owned_.back().get();
  } else {
    devices_.push_back(owned_.back().get());
  }
  return static_cast<int>(visible_++);
}

void DeviceTable::ForgetVirtual() {
  const std::lock_guard lock(mutex_);
  visible_ = plain_;
}

std::string DeviceTable::WhyNotMergeable(std::span<const int> members) const {
  if (members.empty()) return "the list of devices is empty";
  if (members.size() > kMostMembers) {
    return std::to_string(members.size()) + " devices are more than " +
           std::to_string(kMostMembers);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const int member = members[i];
    if (member < 0 || static_cast<size_t>(member) >= devices_.size()) {
      return "there is no device " + std::to_string(member);
    }
    const Device& device = *devices_[static_cast<size_t>(member)];
    if (static_cast<size_t>(member) >= plain_) {
      return "device " + std::to_string(member) + " (" + device.name +
             ") is a merged device already";
    }
    if (std::count(members.begin(), members.end(), member) > 1) {
      return device.name + " is listed twice";
    }
    for (size_t before = 0; before < i; ++before) {
      const Device& other = *devices_[static_cast<size_t>(members[before])];
      if (other.nics.front().name != device.nics.front().name) continue;
      return other.name + " and " + device.name + " belong to one NIC";
    }
  }
  if (members.size() == 1) return {};
  const Nic& first = devices_[static_cast<size_t>(members.front())]->nics.front();
  const bool asked = MergeIsAsked();
  for (const int member : members) {
    const Nic& nic = devices_[static_cast<size_t>(member)]->nics.front();
    if (nic.address.family() != first.address.family()) {
      return first.name + " has an " + std::string(FamilyName(first)) + " address and " + nic.name +
             " an " + std::string(FamilyName(nic)) +
             " one; set NCCL_SOCKET_FAMILY to use one family";
    }
    if (!asked && !IsPciFunction(nic)) {
      return nic.name +
             " is not a PCI function; set NCCL_NET_FORCE_MERGE or NCCL_NET_MERGE_LEVEL to merge it";
    }
  }
  return {};
}

}  // namespace nccltune::net
