// SPDX-License-Identifier: Apache-2.0
#include "host/net/net_plugin.h"

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "abi/net_types.h"
#include "abi/net_v10.h"
#include "abi/net_v11.h"
#include "abi/net_v12.h"
#include "abi/net_v6.h"
#include "abi/net_v7.h"
#include "abi/net_v8.h"
#include "abi/net_v9.h"
#include "common/shared_library.h"
#include "host/guarded.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

std::atomic<uint64_t> profiler_calls{0};

// The profiler callback that plugins of interface v10 and later get. The callback accepts each
// event and counts the calls.
abi::Result CountProfilerCall(void** event, int /*type*/, void* /*parent*/, int64_t /*plugin*/,
                              void* /*data*/) {
  profiler_calls.fetch_add(1, std::memory_order_relaxed);
  // The plugin passes this handle back at the end of the event; nothing reads it.
  static int token = 0;
  if (event != nullptr) *event = &token;
  return abi::kSuccess;
}

// Implements NetPlugin for one interface version.
template <int kVersion, typename Net, typename Properties>
class Adapter final : public NetPlugin {
 public:
  Adapter(SharedLibrary library, const Net* net) : library_(std::move(library)), net_(net) {}

  // Returns the name of the first null member that NCCL uses without a null check. Returns null if
  // all these members are set.
  static const char* Missing(const Net& net) {
    if (net.name == nullptr) return "name";
    if (net.init == nullptr) return "init";
    if (net.devices == nullptr) return "devices";
    if (net.get_properties == nullptr) return "getProperties";
    if (net.listen == nullptr) return "listen";
    if (net.connect == nullptr) return "connect";
    if (net.accept == nullptr) return "accept";
    if (net.reg_mr == nullptr) return "regMr";
    if (net.dereg_mr == nullptr) return "deregMr";
    if (net.isend == nullptr) return "isend";
    if (net.irecv == nullptr) return "irecv";
    if (net.test == nullptr) return "test";
    if (net.close_send == nullptr) return "closeSend";
    if (net.close_recv == nullptr) return "closeRecv";
    if (net.close_listen == nullptr) return "closeListen";
    if constexpr (kVersion >= 11) {
      if (net.finalize == nullptr) return "finalize";
    }
    return nullptr;
  }

  int version() const override { return kVersion; }
  const char* name() const override { return net_->name; }

  abi::Result Init(uint64_t communicator, [[maybe_unused]] int traffic_class,
                   void** context) override {
    const CallScope call("init");
    if constexpr (kVersion >= 11) {
      abi::NetCommConfig config{};
      config.traffic_class = traffic_class;
      return net_->init(context, communicator, &config, plugin_log::Function(), &CountProfilerCall);
    } else {
      *context = nullptr;
      traffic_class_ = traffic_class;
      if constexpr (kVersion >= 10) {
        return net_->init(plugin_log::Function(), &CountProfilerCall);
      } else {
        return net_->init(plugin_log::Function());
      }
    }
  }

  abi::Result Finalize([[maybe_unused]] void* context) override {
    if constexpr (kVersion >= 11) {
      const CallScope call("finalize");
      return net_->finalize(context);
    } else {
      return abi::kSuccess;
    }
  }

  abi::Result Devices(int* count) override {
    const CallScope call("devices");
    return net_->devices(count);
  }

  abi::Result GetProperties(int device, NetProperties* properties, std::string* fault) override {
    const CallScope call("getProperties");
    // NCCL passes an uninitialized struct. Two calls with different initial bytes show which
    // members the plugin did not set.
    NetProperties seen[2];
    for (int i = 0; i < 2; ++i) {
      Properties blank;
      std::memset(static_cast<void*>(&blank), i == 0 ? 0xA5 : 0x5A, sizeof blank);
      const char* const unset_text = blank.name;
      Guarded<Properties> guarded("properties", blank);
      const abi::Result result = net_->get_properties(device, guarded.data());
      if (result != abi::kSuccess) return result;
      if (const std::optional<std::string> damage = guarded.TakeDamage()) *fault = *damage;
      const Properties got = guarded.get();
      if (got.name == unset_text || got.pci_path == unset_text || got.name == nullptr) {
        *fault = got.pci_path == unset_text ? "leaves pciPath unset" : "gives no name";
        return abi::kSuccess;
      }
      Convert(got, &seen[i]);
    }
    *properties = seen[0];
    if (fault->empty() && !(seen[0] == seen[1])) *fault = "leaves a member unset";
    return abi::kSuccess;
  }

  abi::Result MakeVirtualDevice([[maybe_unused]] const std::vector<int>& members,
                                [[maybe_unused]] int* device) override {
    if constexpr (kVersion >= 9) {
      if (net_->make_v_device == nullptr) return abi::kInvalidUsage;
      const CallScope call("makeVDevice");
      decltype(Properties::v_device) request{};
      if (members.size() > std::size(request.devices)) return abi::kInvalidArgument;
      for (const int member : members) request.devices[request.count++] = member;
      return net_->make_v_device(device, &request);
    } else {
      return abi::kInvalidUsage;
    }
  }

  abi::Result Listen([[maybe_unused]] void* context, int device, void* handle,
                     void** listen_comm) override {
    const CallScope call("listen");
    if constexpr (kVersion >= 11) {
      return net_->listen(context, device, handle, listen_comm);
    } else {
      return net_->listen(device, handle, listen_comm);
    }
  }

  abi::Result Connect([[maybe_unused]] void* context, int device, void* handle,
                      void** send_comm) override {
    const CallScope call("connect");
    if constexpr (kVersion < 7) {
      return net_->connect(device, handle, send_comm);
    } else {
      abi::NetDeviceHandle* device_handle = nullptr;
      if constexpr (kVersion >= 11) {
        return net_->connect(context, device, handle, send_comm, &device_handle);
      } else if constexpr (kVersion >= 10) {
        abi::NetCommConfig config{};
        config.traffic_class = traffic_class_;
        return net_->connect(device, &config, handle, send_comm, &device_handle);
      } else {
        return net_->connect(device, handle, send_comm, &device_handle);
      }
    }
  }

  abi::Result Accept(void* listen_comm, void** recv_comm) override {
    const CallScope call("accept");
    if constexpr (kVersion < 7) {
      return net_->accept(listen_comm, recv_comm);
    } else {
      abi::NetDeviceHandle* device_handle = nullptr;
      return net_->accept(listen_comm, recv_comm, &device_handle);
    }
  }

  abi::Result RegMr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    const CallScope call("regMr");
    if constexpr (kVersion < 8) {
      if (bytes > INT_MAX) return abi::kInternalError;
      return net_->reg_mr(comm, data, static_cast<int>(bytes), type, mhandle);
    } else {
      return net_->reg_mr(comm, data, bytes, type, mhandle);
    }
  }

  abi::Result DeregMr(void* comm, void* mhandle) override {
    const CallScope call("deregMr");
    return net_->dereg_mr(comm, mhandle);
  }

  abi::Result Isend(void* send_comm, void* data, size_t bytes, int tag, void* mhandle,
                    [[maybe_unused]] void* phandle, void** request) override {
    const CallScope call("isend");
    if constexpr (kVersion < 9) {
      if (bytes > INT_MAX) return abi::kInternalError;
      return net_->isend(send_comm, data, static_cast<int>(bytes), tag, mhandle, request);
    } else if constexpr (kVersion < 10) {
      return net_->isend(send_comm, data, bytes, tag, mhandle, request);
    } else {
      return net_->isend(send_comm, data, bytes, tag, mhandle, phandle, request);
    }
  }

  abi::Result Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle,
                    [[maybe_unused]] void* phandle, void** request) override {
    const CallScope call("irecv");
    if constexpr (kVersion < 9) {
      if (bytes > INT_MAX) return abi::kInternalError;
      int size = static_cast<int>(bytes);
      return net_->irecv(recv_comm, 1, &data, &size, &tag, &mhandle, request);
    } else if constexpr (kVersion < 10) {
      return net_->irecv(recv_comm, 1, &data, &bytes, &tag, &mhandle, request);
    } else {
      return net_->irecv(recv_comm, 1, &data, &bytes, &tag, &mhandle, &phandle, request);
    }
  }

  abi::Result Test(void* request, int* done, int* sizes) override {
    const CallScope call("test");
    return net_->test(request, done, sizes);
  }
  abi::Result CloseSend(void* send_comm) override {
    const CallScope call("closeSend");
    return net_->close_send(send_comm);
  }
  abi::Result CloseRecv(void* recv_comm) override {
    const CallScope call("closeRecv");
    return net_->close_recv(recv_comm);
  }
  abi::Result CloseListen(void* listen_comm) override {
    const CallScope call("closeListen");
    return net_->close_listen(listen_comm);
  }

 private:
  static void Convert(const Properties& from, NetProperties* to) {
    to->name = from.name;
    to->pci_path = from.pci_path == nullptr ? "" : from.pci_path;
    to->guid = from.guid;
    to->ptr_support = from.ptr_support;
    to->speed = from.speed;
    to->port = from.port;
    to->latency = from.latency;
    to->max_comms = from.max_comms;
    to->max_recvs = from.max_recvs;
    if constexpr (kVersion >= 7) {
      to->net_device_type = static_cast<int>(from.net_device_type);
      to->net_device_version = from.net_device_version;
    }
    if constexpr (kVersion >= 8) to->reg_is_global = from.reg_is_global;
    if constexpr (kVersion >= 9) {
      to->force_flush = from.force_flush;
      const auto& members = from.v_device;
      for (int i = 0; i < members.count && i < static_cast<int>(std::size(members.devices)); ++i) {
        to->members.push_back(members.devices[i]);
      }
      to->max_p2p_bytes = from.max_p2p_bytes;
      to->max_coll_bytes = from.max_coll_bytes;
    }
    if constexpr (kVersion >= 11) to->max_multi_request_size = from.max_multi_request_size;
    if constexpr (kVersion >= 12) {
      to->rail_id = from.rail_id;
      to->plane_id = from.plane_id;
    }
  }

  SharedLibrary library_;
  const Net* net_;
  int traffic_class_ = -1;
};

using Make = std::unique_ptr<NetPlugin> (*)(SharedLibrary library, const void* exported,
                                            std::string* error);

template <int kVersion, typename Net, typename Properties>
std::unique_ptr<NetPlugin> MakeAdapter(SharedLibrary library, const void* exported,
                                       std::string* error) {
  using OfVersion = Adapter<kVersion, Net, Properties>;
  const auto* const net = static_cast<const Net*>(exported);
  if (const char* const missing = OfVersion::Missing(*net)) {
    *error = "interface v" + std::to_string(kVersion) + " has no " + missing;
    return nullptr;
  }
  return std::make_unique<OfVersion>(std::move(library), net);
}

struct SupportedInterface {
  int version;
  Make make;
};

// The supported interface versions, newest first.
constexpr std::array kInterfaces = {
    SupportedInterface{12, &MakeAdapter<12, abi::NetV12, abi::NetPropertiesV12>},
    SupportedInterface{11, &MakeAdapter<11, abi::NetV11, abi::NetPropertiesV11>},
    SupportedInterface{10, &MakeAdapter<10, abi::NetV10, abi::NetPropertiesV10>},
    SupportedInterface{9, &MakeAdapter<9, abi::NetV9, abi::NetPropertiesV9>},
    SupportedInterface{8, &MakeAdapter<8, abi::NetV8, abi::NetPropertiesV8>},
    SupportedInterface{7, &MakeAdapter<7, abi::NetV7, abi::NetPropertiesV7>},
    SupportedInterface{6, &MakeAdapter<6, abi::NetV6, abi::NetPropertiesV6>},
};

std::string SymbolName(int version) { return "ncclNetPlugin_v" + std::to_string(version); }

}  // namespace

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
