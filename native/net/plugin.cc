// SPDX-License-Identifier: Apache-2.0
#include "net/plugin.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/settings.h"
#include "net/descriptors.h"
#include "net/device_table.h"
#include "net/kernel_facts.h"
#include "net/net_settings.h"
#include "net/transport.h"

namespace nccltune::net::plugin {
namespace {

static_assert(kHandleBytes == abi::kNetHandleBytes);

struct Context {
  ConnectionContext context;
};

// State that all communicators share. It is never destroyed: NCCL may call the plugin during
// process exit.
struct Process {
  std::mutex mutex;
  std::optional<ConnectionContext> context;  // for interfaces up to v10
  int communicators = 0;                     // number of live communicators, since v11
  bool settings_judged = false;
};
constinit Process process;

abi::Result NoDevice(const char* call, int device) {
  return Refuse(abi::kInvalidArgument, "%s: there is no device %d", call, device);
}

void LogConfiguration(const Log& log, int interface_version, const NetSettings& settings) {
  const int threads = PoolThreads(settings);
  log.Info("nccltune " NCCLTUNE_VERSION ", interface v" + std::to_string(interface_version) + "; " +
           InitLine(DeviceTable::Get().nics(), ReadKernelFacts(), settings,
                    FlowsOf(settings, threads), threads));
}

// Reads the settings and makes a context. The caller holds `process.mutex`. Problems with settings
// are logged once per process.
ConnectionContext MakeContext(int interface_version, int traffic_class, uint64_t owner,
                              abi::LogFunction function) {
  const Log log = TakeLog(function);
  std::vector<std::string> problems = UnknownSettings();
  const NetSettings settings = ReadNetSettings(&problems);
  if (!log.silent() && !std::exchange(process.settings_judged, true)) {
    for (const std::string& problem : problems) log.Warn(problem);
  }
  if (settings.open_files != 0) RaiseDescriptorLimit(settings.open_files);
  if (DeviceTable::Get().size() == 0) {
    // The cause may be a lack of file descriptors: the system call that lists interfaces needs one.
    if (ReadDescriptorUse().free() == 0) ReportShortage(log, "init", EMFILE);
    log.Warn("no network interface with an address that NCCL_SOCKET_IFNAME allows");
  } else {
    LogConfiguration(log, interface_version, settings);
  }
  return {.settings = settings, .log = log, .traffic_class = traffic_class, .owner = owner};
}

std::optional<ConnectionContext> OfProcess() {
  const std::lock_guard lock(process.mutex);
  return process.context;
}

abi::Result ListenWith(const ConnectionContext& context, int device, void* handle,
                       void** listen_comm) {
  const Device* const found = DeviceTable::Get().Find(device);
  if (found == nullptr) return NoDevice("listen", device);
  Listener* listener = nullptr;
  const abi::Result result = net::Listen(
      context, *found, Handle(static_cast<std::byte*>(handle), kHandleBytes), &listener);
  *listen_comm = listener;
  return result;
}

abi::Result ConnectWith(const ConnectionContext& context, int device, void* handle,
                        void** send_comm) {
  const Device* const found = DeviceTable::Get().Find(device);
  if (found == nullptr) return NoDevice("connect", device);
  Sender* sender = nullptr;
  const abi::Result result =
      net::Connect(context, *found, Handle(static_cast<std::byte*>(handle), kHandleBytes), &sender);
  *send_comm = sender;
  return result;
}

// Checks the pointers that NCCL passes to listen and connect, and sets *comm to null.
abi::Result CheckPlaces(const char* call, void* handle, void** comm) {
  if (comm == nullptr) return RefuseNull(call, "the pointer to the comm");
  *comm = nullptr;
  if (handle == nullptr) return RefuseNull(call, "the handle");
  return abi::kSuccess;
}

}  // namespace

abi::Result Init(int interface_version, abi::LogFunction log) noexcept {
  return Guarded("init", [&] {
    const std::lock_guard lock(process.mutex);
    // NCCL calls Init once while it loads the plugin, and counts the devices next. Virtual devices
    // must not be counted then.
    if (process.communicators == 0) DeviceTable::Get().ForgetVirtual();
    process.context =
        MakeContext(interface_version, abi::kNetUndefined, ConnectionContext::kProcess, log);
    return abi::kSuccess;
  });
}

abi::Result Init(int interface_version, void** context, const abi::NetCommConfig* config,
                 abi::LogFunction log) noexcept {
  if (context == nullptr) return RefuseNull("init", "the pointer to the context");
  *context = nullptr;
  return Guarded("init", [&] {
    const int traffic_class = config == nullptr ? abi::kNetUndefined : config->traffic_class;
    const std::lock_guard lock(process.mutex);
    auto made = std::make_unique<Context>(
        Context{MakeContext(interface_version, traffic_class, NewOwner(), log)});
    *context = made.release();
    ++process.communicators;
    return abi::kSuccess;
  });
}

abi::Result Finalize(void* context) noexcept {
  // RCCL also finalizes a context whose init has failed. That context is null.
  if (context == nullptr) return abi::kSuccess;
  return Guarded("finalize", [&] {
    const std::unique_ptr<Context> gone(static_cast<Context*>(context));
    Release(gone->context.owner);
    const std::lock_guard lock(process.mutex);
    if (--process.communicators == 0) DeviceTable::Get().ForgetVirtual();
    return abi::kSuccess;
  });
}

abi::Result Devices(int* count) noexcept {
  if (count == nullptr) return RefuseNull("devices", "the pointer to the number");
  *count = 0;
  return Guarded("devices", [&] {
    *count = DeviceTable::Get().size();
    return abi::kSuccess;
  });
}

abi::Result GetProperties(int device, const void* place, Properties* properties) noexcept {
  if (place == nullptr) return RefuseNull("getProperties", "the pointer to the properties");
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
  if (device == nullptr) return RefuseNull("makeVDevice", "the pointer to the device");
  if (members == nullptr) return RefuseNull("makeVDevice", "the list of members");
  if (count < 1 || count > most) {
    return Refuse(abi::kInvalidArgument, "makeVDevice: %d members, expected 1 to %d", count, most);
  }
  return Guarded("makeVDevice", [&] {
    std::string error;
    const int made =
        DeviceTable::Get().MakeVirtual(std::span(members, static_cast<size_t>(count)), &error);
    if (made < 0) {
      // After kInternalError, NCCL continues with single devices. After kInvalidUsage, NCCL 2.24
      // and 2.25 would end the communicator.
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
    const std::optional<ConnectionContext> context = OfProcess();
    if (!context) return Refuse(abi::kInvalidUsage, "listen: before init");
    return ListenWith(*context, device, handle, listen_comm);
  });
}

abi::Result Listen(void* context, int device, void* handle, void** listen_comm) noexcept {
  const abi::Result checked = CheckPlaces("listen", handle, listen_comm);
  if (checked != abi::kSuccess) return checked;
  if (context == nullptr) return RefuseNull("listen", "the context");
  return Guarded("listen", [&] {
    return ListenWith(static_cast<const Context*>(context)->context, device, handle, listen_comm);
  });
}

abi::Result Connect(int device, const abi::NetCommConfig* config, void* handle,
                    void** send_comm) noexcept {
  const abi::Result checked = CheckPlaces("connect", handle, send_comm);
  if (checked != abi::kSuccess) return checked;
  return Guarded("connect", [&] {
    std::optional<ConnectionContext> context = OfProcess();
    if (!context) return Refuse(abi::kInvalidUsage, "connect: before init");
    if (config != nullptr) context->traffic_class = config->traffic_class;
    return ConnectWith(*context, device, handle, send_comm);
  });
}

abi::Result Connect(void* context, int device, void* handle, void** send_comm) noexcept {
  const abi::Result checked = CheckPlaces("connect", handle, send_comm);
  if (checked != abi::kSuccess) return checked;
  if (context == nullptr) return RefuseNull("connect", "the context");
  return Guarded("connect", [&] {
    return ConnectWith(static_cast<const Context*>(context)->context, device, handle, send_comm);
  });
}

}  // namespace nccltune::net::plugin

namespace nccltune::net {
namespace {

constinit std::atomic<abi::LogFunction> newest = nullptr;

}  // namespace

Log TakeLog(abi::LogFunction function) noexcept {
  newest.store(function, std::memory_order_relaxed);
  return NewestLog();
}

Log NewestLog() noexcept {
  return {newest.load(std::memory_order_relaxed), kLogSubsystems, kLogPrefix};
}

abi::Result Refuse(abi::Result result, const char* format, ...) noexcept {
  std::array<char, 512> text{};
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (length > 0) NewestLog().Warn(text.data());
  return result;
}

abi::Result RefuseNull(const char* call, const char* what) noexcept {
  return Refuse(abi::kInvalidArgument, "%s: %s is null", call, what);
}

}  // namespace nccltune::net
