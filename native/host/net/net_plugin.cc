// SPDX-License-Identifier: Apache-2.0
#include "host/net/net_plugin.h"

#include <array>
#include <atomic>

#include "abi/net_v10.h"
#include "abi/net_v11.h"
#include "abi/net_v12.h"
#include "abi/net_v6.h"
#include "abi/net_v7.h"
#include "abi/net_v8.h"
#include "abi/net_v9.h"
#include "host/net/adapter.h"

namespace nccltune::host::net {
namespace {

struct InterfaceV6 {
  static constexpr int kVersion = 6;
  using Net = abi::NetV6;
  using Properties = abi::NetPropertiesV6;
};

struct InterfaceV7 {
  static constexpr int kVersion = 7;
  using Net = abi::NetV7;
  using Properties = abi::NetPropertiesV7;
};

struct InterfaceV8 {
  static constexpr int kVersion = 8;
  using Net = abi::NetV8;
  using Properties = abi::NetPropertiesV8;
};

struct InterfaceV9 {
  static constexpr int kVersion = 9;
  using Net = abi::NetV9;
  using Properties = abi::NetPropertiesV9;
  using VirtualDevice = abi::NetVDeviceOf4;
};

struct InterfaceV10 {
  static constexpr int kVersion = 10;
  using Net = abi::NetV10;
  using Properties = abi::NetPropertiesV10;
  using VirtualDevice = abi::NetVDeviceOf4;
};

struct InterfaceV11 {
  static constexpr int kVersion = 11;
  using Net = abi::NetV11;
  using Properties = abi::NetPropertiesV11;
  using VirtualDevice = abi::NetVDeviceOf4;
};

struct InterfaceV12 {
  static constexpr int kVersion = 12;
  using Net = abi::NetV12;
  using Properties = abi::NetPropertiesV12;
  using VirtualDevice = abi::NetVDeviceOf8;
};

using Make = std::unique_ptr<NetPlugin> (*)(SharedLibrary library, const void* exported,
                                            std::string* error);

template <typename Interface>
std::unique_ptr<NetPlugin> MakeAdapter(SharedLibrary library, const void* exported,
                                       std::string* error) {
  const auto* const net = static_cast<const typename Interface::Net*>(exported);
  if (const char* const missing = Adapter<Interface>::Missing(*net)) {
    *error = "interface v" + std::to_string(Interface::kVersion) + " has no " + missing;
    return nullptr;
  }
  return std::make_unique<Adapter<Interface>>(std::move(library), net);
}

struct SupportedInterface {
  int version;
  Make make;
};

// The supported interface versions, newest first.
constexpr std::array kInterfaces = {
    SupportedInterface{12, &MakeAdapter<InterfaceV12>},
    SupportedInterface{11, &MakeAdapter<InterfaceV11>},
    SupportedInterface{10, &MakeAdapter<InterfaceV10>},
    SupportedInterface{9, &MakeAdapter<InterfaceV9>},
    SupportedInterface{8, &MakeAdapter<InterfaceV8>},
    SupportedInterface{7, &MakeAdapter<InterfaceV7>},
    SupportedInterface{6, &MakeAdapter<InterfaceV6>},
};

std::string SymbolName(int version) { return "ncclNetPlugin_v" + std::to_string(version); }

std::atomic<uint64_t> profiler_calls{0};

}  // namespace

abi::Result CountProfilerCall(void** event, int /*type*/, void* /*parent*/, int64_t /*plugin*/,
                              void* /*data*/) {
  profiler_calls.fetch_add(1, std::memory_order_relaxed);
  // The plugin passes this handle back at the end of the event; nothing reads it.
  static int token = 0;
  if (event != nullptr) *event = &token;
  return abi::kSuccess;
}

uint64_t NetPlugin::ProfilerCalls() { return profiler_calls.load(std::memory_order_relaxed); }

std::string ResultName(int result) {
  static constexpr std::array<const char*, 8> kNames = {
      "success",          "unhandled CUDA error", "system error", "internal error",
      "invalid argument", "invalid usage",        "remote error", "in progress"};
  if (result >= 0 && static_cast<size_t>(result) < kNames.size()) {
    return kNames[static_cast<size_t>(result)];
  }
  return "result " + std::to_string(result);
}

std::unique_ptr<NetPlugin> NetPlugin::Open(const std::string& path, int interface,
                                           std::string* error) {
  SharedLibrary library = SharedLibrary::Open(path, error);
  if (!library) {
    *error = "cannot be opened: " + *error;
    return nullptr;
  }
  for (const SupportedInterface& known : kInterfaces) {
    if (interface != 0 && interface != known.version) continue;
    const void* const exported = library.FindAddress(SymbolName(known.version).c_str());
    if (exported != nullptr) return known.make(std::move(library), exported, error);
  }
  *error = interface == 0 ? "exports no net interface that this program knows"
                          : "exports no " + SymbolName(interface) + " that this program knows";
  return nullptr;
}

}  // namespace nccltune::host::net
