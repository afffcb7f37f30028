// SPDX-License-Identifier: Apache-2.0
#include "net/device_table.h"
#include "net/kernel_folder.h"
#include "net/support.h"
#include "standard.h"

namespace nccltune::net {
namespace {

// NCCL calls from many threads.
std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

template <typename Made>
abi::Result Give(Made* made, Made** place) {
  const Lock lock(mutex);
  StandIn& stand_in = TheStandIn();
  ++stand_in.calls;
  *place = stand_in.ready && stand_in.result == abi::kSuccess ? made : nullptr;
  return stand_in.result;
}

abi::Result TakeClose(const void* closed) {
  const Lock lock(mutex);
  TheStandIn().closed.push_back(closed);
  return TheStandIn().result;
}

void Keep(const ConnectionContext& context, const Device& device, Handle handle) {
  const Lock lock(mutex);
  StandIn& stand_in = TheStandIn();
  stand_in.context.emplace(context);
  stand_in.device = &device;
  stand_in.handle = handle.data();
  std::ranges::fill(handle, std::byte{0x11});
}

void Keep(const void* of, const void* data, size_t bytes) {
  const Lock lock(mutex);
  StandIn& stand_in = TheStandIn();
  stand_in.asked_of = of;
  stand_in.data = data;
  stand_in.bytes = bytes;
}

Device Plain(const char* name, const char* pci_path, int speed_mbps, int index) {
  Device device;
  device.name = name;
  device.pci_path = pci_path;
  device.guid = 0x1000U + static_cast<uint64_t>(index);
  device.speed_mbps = speed_mbps;
  device.members = {index};
  device.nics = {Nic{.name = name,
                     .address = AddressOf("10.0.0." + std::to_string(index + 1)),
                     .pci_path = pci_path,
                     .driver = "",
                     .speed_mbps = speed_mbps,
                     .mtu = 0}};
  return device;
}

StandIn& Storage() {
  static StandIn stand_in;
  return stand_in;
}

}  // namespace

StandIn& TheStandIn() { return Storage(); }

void ResetStandIn() {
  StandIn& fresh = Storage();
  std::destroy_at(&fresh);
  std::construct_at(&fresh);
  fresh.devices = {Plain("eth0", "/sys/devices/pci0000:00/0000:00:05.0", 25000, 0),
                   Plain("eth1", "", 10000, 1)};
  fresh.plain = 2;
  fresh.visible = 2;
}

uint64_t NewOwner() noexcept {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

void Release(uint64_t owner) noexcept {
  const Lock lock(mutex);
  TheStandIn().released.push_back(owner);
}

abi::Result Listen(const ConnectionContext& context, const Device& device, Handle handle,
                   Listener** listener) noexcept {
  Keep(context, device, handle);
  return Give(&TheStandIn().listener, listener);
}

abi::Result Connect(const ConnectionContext& context, const Device& device, Handle handle,
                    Sender** sender) noexcept {
  Keep(context, device, handle);
  return Give(&TheStandIn().sender, sender);
}

abi::Result Accept(Listener* listener, Receiver** receiver) noexcept {
  const Lock lock(mutex);
  TheStandIn().asked_of = listener;
  return Give(&TheStandIn().receiver, receiver);
}

abi::Result Send(Sender* sender, const void* data, size_t bytes,
                 TransferRequest** request) noexcept {
  Keep(sender, data, bytes);
  return Give(&TheStandIn().request, request);
}

abi::Result Receive(Receiver* receiver, void* data, size_t bytes,
                    TransferRequest** request) noexcept {
  Keep(receiver, data, bytes);
  return Give(&TheStandIn().request, request);
}

abi::Result Test(TransferRequest* request, bool* done, size_t* bytes) noexcept {
  const Lock lock(mutex);
  StandIn& stand_in = TheStandIn();
  ++stand_in.calls;
  stand_in.asked_of = request;
  *done = stand_in.ready;
  if (bytes != nullptr) *bytes = stand_in.transferred;
  return stand_in.result;
}

abi::Result Close(Listener* listener) noexcept { return TakeClose(listener); }
abi::Result Close(Sender* sender) noexcept { return TakeClose(sender); }
abi::Result Close(Receiver* receiver) noexcept { return TakeClose(receiver); }

NetSettings ReadNetSettings(std::vector<std::string>* warnings) {
  const Lock lock(mutex);
  for (const std::string& problem : TheStandIn().setting_problems) warnings->push_back(problem);
  NetSettings settings;
  settings.flows = 5;
  return settings;
}

DeviceTable& DeviceTable::Get() {
  const Lock lock(mutex);
  switch (TheStandIn().devices_throw) {
    case StandIn::Throws::kNothing:
      break;
    case StandIn::Throws::kBadAlloc:
      throw std::bad_alloc();
    case StandIn::Throws::kRuntimeError:
      throw std::runtime_error("the interfaces cannot be listed");
    case StandIn::Throws::kNumber:
      throw 7;
  }
  static DeviceTable table({});
  return table;
}

DeviceTable::DeviceTable(std::vector<Nic> /*nics*/, int /*devices_each*/)
    : plain_(0), visible_(0) {}

std::vector<Nic> DeviceTable::nics() const {
  const Lock lock(mutex);
  std::vector<Nic> nics;
  for (const Device& device : TheStandIn().devices) {
    if (device.nics.size() == 1) nics.push_back(device.nics.front());
  }
  return nics;
}

int DeviceTable::size() const {
  const Lock lock(mutex);
  return TheStandIn().visible;
}

const Device* DeviceTable::Find(int index) const {
  const Lock lock(mutex);
  const std::deque<Device>& devices = TheStandIn().devices;
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) return nullptr;
  return &devices[static_cast<size_t>(index)];
}

int DeviceTable::MakeVirtual(std::span<const int> members, std::string* error) {
  const Lock lock(mutex);
  StandIn& stand_in = TheStandIn();
  stand_in.members.assign(members.begin(), members.end());
  if (!stand_in.no_virtual_device.empty()) {
    *error = stand_in.no_virtual_device;
    return -1;
  }
  const int index = static_cast<int>(stand_in.devices.size());
  Device device = Plain("eth0+eth1", "", 35000, index);
  device.members = stand_in.members;
  device.nics = {stand_in.devices[0].nics[0], stand_in.devices[1].nics[0]};
  stand_in.devices.push_back(std::move(device));
  stand_in.visible = index + 1;
  return index;
}

void DeviceTable::ForgetVirtual() {
  const Lock lock(mutex);
  ++TheStandIn().forgotten;
  TheStandIn().visible = TheStandIn().plain;
}

}  // namespace nccltune::net
