// SPDX-License-Identifier: Apache-2.0
#include "net/device_table.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/content_hash.h"
#include "common/text.h"
#include "net/interfaces.h"
#include "net/net_settings.h"

namespace nccltune::net {
namespace {

constexpr size_t kFewestDevices = 4;

// The same in every process of a host, so that NCCL sees one NIC where two ranks describe it, and
// another on every host, where NCCL fuses the topologies of several.
uint64_t GuidOf(const Nic& nic) {
  return ContentHash(nic.name + '\n' + nic.pci_path + '\n' + AddressText(nic.address));
}

// The `copy`th device of a NIC that is `copies` devices.
Device PlainDevice(Nic nic, int index, int copy, int copies) {
  Device device;
  device.name = nic.name;
  device.guid = GuidOf(nic);
  // No interface has a slash in its name.
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

bool SameSet(std::vector<int> one, std::span<const int> other) {
  std::vector<int> sorted(other.begin(), other.end());
  std::sort(one.begin(), one.end());
  std::sort(sorted.begin(), sorted.end());
  return one == sorted;
}

}  // namespace

int DevicesEach(size_t nics) {
  std::vector<std::string> warnings;  // given where all settings are judged
  const int wanted = ReadNetSettings(&warnings).devices;
  if (wanted != 0) return wanted;
  return MergeIsAsked() || nics == 0 ? 1 : std::max(static_cast<int>(kFewestDevices / nics), 1);
}

DeviceTable& DeviceTable::Get() {
  // Never destroyed: NCCL may ask while the process ends.
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
      told_(plain_) {
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
  return static_cast<int>(told_);
}

const Device* DeviceTable::Find(int index) const {
  const std::lock_guard lock(mutex_);
  if (index < 0 || static_cast<size_t>(index) >= devices_.size()) return nullptr;
  return devices_[static_cast<size_t>(index)];
}

int DeviceTable::MakeVirtual(std::span<const int> members, std::string* error) {
  const std::lock_guard lock(mutex_);
  *error = Objection(members);
  if (!error->empty()) return -1;
  if (members.size() == 1) return members.front();
  // One more than NCCL was told of: what it asks for again after ForgetVirtual is where it was.
  const size_t known = std::min(told_ + 1, devices_.size());
  for (size_t index = plain_; index < known; ++index) {
    if (!SameSet(devices_[index]->members, members)) continue;
    told_ = std::max(told_, index + 1);
    return static_cast<int>(index);
  }
  std::vector<const Device*> parts;
  parts.reserve(members.size());
  for (const int member : members) parts.push_back(devices_[static_cast<size_t>(member)]);
  owned_.push_back(std::make_unique<const Device>(VirtualDevice(parts)));
  if (told_ < devices_.size()) {
    devices_[told_] = owned_.back().get();
  } else {
    devices_.push_back(owned_.back().get());
  }
  return static_cast<int>(told_++);
}

void DeviceTable::ForgetVirtual() {
  const std::lock_guard lock(mutex_);
  told_ = plain_;
}

std::string DeviceTable::Objection(std::span<const int> members) const {
  if (members.empty()) return "no device is named";
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
      return "device " + std::to_string(member) + " (" + device.name + ") is several already";
    }
    if (std::count(members.begin(), members.end(), member) > 1) {
      return device.name + " is named twice";
    }
    for (size_t before = 0; before < i; ++before) {
      const Device& other = *devices_[static_cast<size_t>(members[before])];
      if (other.nics.front().name != device.nics.front().name) continue;
      return other.name + " and " + device.name + " are one NIC";
    }
  }
  if (members.size() == 1) return {};
  const Nic& first = devices_[static_cast<size_t>(members.front())]->nics.front();
  const bool asked = MergeIsAsked();
  for (const int member : members) {
    const Nic& nic = devices_[static_cast<size_t>(member)]->nics.front();
    if (nic.address.family() != first.address.family()) {
      return first.name + " has an " + std::string(FamilyName(first)) + " address and " + nic.name +
             " an " + std::string(FamilyName(nic)) + " one; NCCL_SOCKET_FAMILY makes them alike";
    }
    if (!asked && !IsPciFunction(nic)) {
      return nic.name +
             " is no PCI function; NCCL_NET_FORCE_MERGE or NCCL_NET_MERGE_LEVEL makes it part of "
             "a device";
    }
  }
  return {};
}

}  // namespace nccltune::net
