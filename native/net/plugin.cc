// SPDX-License-Identifier: Apache-2.0
#include "net/plugin.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/settings.h"
#include "net/device_table.h"
#include "net/kernel_facts.h"
#include "net/net_settings.h"
#include "net/pool_size.h"
#include "net/refusal.h"
#include "net/transport.h"

namespace nccltune::net::plugin {
namespace {

static_assert(kHandleBytes == abi::kNetHandleBytes);

struct Context {
  Surroundings surroundings;
};

// What the communicators share. Never taken apart: NCCL may call while the process ends.
struct Process {
  std::mutex mutex;
  std::optional<Surroundings> surroundings;  // of the interfaces until v10
  int communicators = 0;                     // of those since v11
  bool settings_judged = false;
};
constinit Process process;

abi::Result NoDevice(const char* call, int device) {
  return Refuse(abi::kInvalidArgument, "%s: there is no device %d", call, device);
}

void SayWhatIsUsed(const Log& log, int interface_version, const NetSettings& settings) {
  const int threads = PoolThreads(settings);
  log.Info("nccltune " NCCLTUNE_VERSION ", interface v" + std::to_string(interface_version) + "; " +
           InitLine(DeviceTable::Get().nics(), ReadKernelFacts(), settings,
                    FlowsOf(settings, threads), threads));
}

// Under the lock. What is wrong with the settings is said once a process.
Surroundings MakeSurroundings(int interface_version, int traffic_class, abi::LogFunction function) {
  const Log log = TakeLog(function);
  std::vector<std::string> problems = UnknownSettings();
  const NetSettings settings = ReadNetSettings(&problems);
  if (!log.silent() && !std::exchange(process.settings_judged, true)) {
    for (const std::string& problem : problems) log.Warn(problem);
  }
  if (DeviceTable::Get().size() == 0) {
    log.Warn("no network interface with an address that NCCL_SOCKET_IFNAME allows");
  } else {
    SayWhatIsUsed(log, interface_version, settings);
  }
  return {.settings = settings, .log = log, .traffic_class = traffic_class};
}

std::optional<Surroundings> OfProcess() {
  const std::lock_guard lock(process.mutex);
  return process.surroundings;
}

abi::Result ListenWith(const Surroundings& surroundings, int device, void* handle,
                       void** listen_comm) {
  const Device* const found = DeviceTable::Get().Find(device);
  if (found == nullptr) return NoDevice("listen", device);
  Listener* listener = nullptr;
  const abi::Result result = net::Listen(
      surroundings, *found, Handle(static_cast<std::byte*>(handle), kHandleBytes), &listener);
  *listen_comm = listener;
  return result;
}

abi::Result ConnectWith(const Surroundings& surroundings, int device, void* handle,
                        void** send_comm) {
  const Device* const found = DeviceTable::Get().Find(device);
  if (found == nullptr) return NoDevice("connect", device);
  Sender* sender = nullptr;
  const abi::Result result = net::Connect(
      surroundings, *found, Handle(static_cast<std::byte*>(handle), kHandleBytes), &sender);
  *send_comm = sender;
  return result;
}

// The places that listen and connect write to.
abi::Result CheckPlaces(const char* call, void* handle, void** comm) {
  if (comm == nullptr) return RefuseNull(call, "the place of the comm");
  *comm = nullptr;
  if (handle == nullptr) return RefuseNull(call, "the handle");
  return abi::kSuccess;
}

}  // namespace

abi::Result Init(int interface_version, abi::LogFunction log) noexcept {
  return Guarded("init", [&] {
    const std::lock_guard lock(process.mutex);
    // NCCL does so once while the plugin is loaded, and counts the devices next.
    if (process.communicators == 0) DeviceTable::Get().ForgetVirtual();
    process.surroundings = MakeSurroundings(interface_version, abi::kNetUndefined, log);
    return abi::kSuccess;
  });
}

abi::Result Init(int interface_version, void** context, const abi::NetCommConfig* config,
                 abi::LogFunction log) noexcept {
  if (context == nullptr) return RefuseNull("init", "the place of the context");
  *context = nullptr;
  return Guarded("init", [&] {
    const int traffic_class = config == nullptr ? abi::kNetUndefined : config->traffic_class;
    const std::lock_guard lock(process.mutex);
    auto made =
        std::make_unique<Context>(Context{MakeSurroundings(interface_version, traffic_class, log)});
    *context = made.release();
    ++process.communicators;
    return abi::kSuccess;
  });
}

abi::Result Finalize(void* context) noexcept {
  // RCCL has finalized what failed to start.
  if (context == nullptr) return abi::kSuccess;
  return Guarded("finalize", [&] {
    const std::unique_ptr<Context> gone(static_cast<Context*>(context));
    const std::lock_guard lock(process.mutex);
    if (--process.communicators == 0) DeviceTable::Get().ForgetVirtual();
    return abi::kSuccess;
  });
}

abi::Result Devices(int* count) noexcept {
  if (count == nullptr) return RefuseNull("devices", "the place of the number");
  *count = 0;
  return Guarded("devices", [&] {
    *count = DeviceTable::Get().size();
    return abi::kSuccess;
  });
}

abi::Result GetProperties(int device, const void* place, Properties* properties) noexcept {
  if (place == nullptr) return RefuseNull("getProperties", "the place of the properties");
  return Guarded("getProperties", [&] {
    const Device* const found = DeviceTable::Get().Find(device);
    if (found == nullptr) return NoDevice("getProperties", device);
    *properties = {.name = found->name.c_str(),
                   .pci_path = found->pci_path.empty() ? nullptr : found->pci_path.c_str(),
                   .guid = found->guid,
                   .speed_mbps = found->speed_mbps,
                   .members = 0,
                   .member = {}};
    for (const int member : found->members) {
      if (properties->members == Properties::kMostMembers) break;
      properties->member[static_cast<size_t>(properties->members++)] = member;
    }
    return abi::kSuccess;
  });
}

abi::Result MakeVDevice(int* device, const int* members, int count, int most) noexcept {
  if (device == nullptr) return RefuseNull("makeVDevice", "the place of the device");
  if (members == nullptr) return RefuseNull("makeVDevice", "the list of members");
  if (count < 1 || count > most) {
    return Refuse(abi::kInvalidArgument, "makeVDevice: %d members, where 1 to %d can be", count,
                  most);
  }
  return Guarded("makeVDevice", [&] {
    std::string error;
    const int made =
        DeviceTable::Get().MakeVirtual(std::span(members, static_cast<size_t>(count)), &error);
    if (made < 0) {
      // NCCL goes on with single devices. Not so 2.24 and 2.25 after kInvalidUsage, which end the
      // communicator.
      NewestLog().Info("makeVDevice: " + error);
      return abi::kInternalError;
    }
    *device = made;
    return abi::kSuccess;
  });
}

abi::Result Listen(int device, void* handle, void** listen_comm) noexcept {
  const abi::Result checked = CheckPlaces("listen", handle, listen_comm);
  if (checked != abi::kSuccess) return checked;
  return Guarded("listen", [&] {
    const std::optional<Surroundings> surroundings = OfProcess();
    if (!surroundings) return Refuse(abi::kInvalidUsage, "listen: before init");
    return ListenWith(*surroundings, device, handle, listen_comm);
  });
}

abi::Result Listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  const abi::Result checked = CheckPlaces("listen", handle, listen_comm);
  if (checked != abi::kSuccess) return checked;
  if (context == nullptr) return RefuseNull("listen", "the context");
  return Guarded("listen", [&] {
    return ListenWith(static_cast<const Context*>(context)->surroundings, device, handle,
                      listen_comm);
  });
}

abi::Result Connect(int device, const abi::NetCommConfig* config, void* handle,
                    void** send_comm) noexcept {
  const abi::Result checked = CheckPlaces("connect", handle, send_comm);
  if (checked != abi::kSuccess) return checked;
  return Guarded("connect", [&] {
    std::optional<Surroundings> surroundings = OfProcess();
    if (!surroundings) return Refuse(abi::kInvalidUsage, "connect: before init");
    if (config != nullptr) surroundings->traffic_class = config->traffic_class;
    return ConnectWith(*surroundings, device, handle, send_comm);
  });
}

abi::Result Connect(void* context, int device, void* handle, void** send_comm) noexcept {
  const abi::Result checked = CheckPlaces("connect", handle, send_comm);
  if (checked != abi::kSuccess) return checked;
  if (context == nullptr) return RefuseNull("connect", "the context");
  return Guarded("connect", [&] {
    return ConnectWith(static_cast<const Context*>(context)->surroundings, device, handle,
                       send_comm);
  });
}

}  // namespace nccltune::net::plugin
