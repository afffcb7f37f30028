// SPDX-License-Identifier: Apache-2.0
#include "host/net/net_plugin.h"

#include <array>
#include <atomic>
#include <climits>
#include <iterator>
#include <type_traits>
#include <utility>

#include "abi/net.h"
#include "common/shared_library.h"
#include "host/plugin_log.h"

namespace nccltune::host::net {
namespace {

std::atomic<const char*> call_in_progress = nullptr;

// Names the call that this thread makes until the end of the scope.
class [[nodiscard]] InCall {
 public:
  explicit InCall(const char* call) { call_in_progress.store(call, std::memory_order_relaxed); }
  ~InCall() { call_in_progress.store(nullptr, std::memory_order_relaxed); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
};

// The profiler callback that plugins of interface v10 and later get.
abi::Result IgnoreEvent(void** /*event*/, int /*type*/, void* /*parent*/, int64_t /*plugin*/,
                        void* /*data*/) {
  return abi::kSuccess;
}

// Implements NetPlugin for one interface version.
template <int kVersion, typename Net, typename Properties>
class Adapter final : public NetPlugin {
 public:
  Adapter(SharedLibrary library, const void* exported)
      : library_(std::move(library)), net_(*static_cast<const Net*>(exported)) {}

  int version() const override { return kVersion; }
  const char* name() const override { return net_.name; }

  abi::Result Init(uint64_t communicator, [[maybe_unused]] int traffic_class,
                   void** context) override {
    const InCall call("init");
    *context = nullptr;
    config_.traffic_class = traffic_class;
    if constexpr (kVersion >= 11) {
      return net_.init(context, communicator, &config_, plugin_log::Function(), IgnoreEvent);
    } else if constexpr (kVersion == 10) {
      return net_.init(plugin_log::Function(), IgnoreEvent);
    } else {
      return net_.init(plugin_log::Function());
    }
  }

  abi::Result Finalize([[maybe_unused]] void* context) override {
    const InCall call("finalize");
    if constexpr (kVersion >= 11) return net_.finalize(context);
    return abi::kSuccess;
  }

  abi::Result Devices(int* count) override {
    const InCall call("devices");
    return net_.devices(count);
  }

  abi::Result GetName(int device, std::string* name) override {
    const InCall call("getProperties");
    Properties got{};
    const abi::Result result = net_.get_properties(device, &got);
    if (result == abi::kSuccess) *name = got.name;
    return result;
  }

  abi::Result MakeVirtualDevice([[maybe_unused]] const std::vector<int>& members,
                                [[maybe_unused]] int* device) override {
    const InCall call("makeVDevice");
    if constexpr (kVersion >= 9) {
      if (net_.make_v_device == nullptr) return abi::kInvalidUsage;
      decltype(Properties::v_device) request{};
      if (members.size() > std::size(request.devices)) return abi::kInvalidArgument;
      for (const int member : members) request.devices[request.count++] = member;
      return net_.make_v_device(device, &request);
    }
    return abi::kInvalidUsage;
  }

  abi::Result Listen([[maybe_unused]] void* context, int device, void* handle,
                     void** listen_comm) override {
    const InCall call("listen");
    if constexpr (kVersion >= 11) {
      return net_.listen(context, device, handle, listen_comm);
    } else {
      return net_.listen(device, handle, listen_comm);
    }
  }

  abi::Result Connect([[maybe_unused]] void* context, int device, void* handle,
                      void** send_comm) override {
    const InCall call("connect");
    [[maybe_unused]] abi::NetDeviceHandle* device_handle = nullptr;
    if constexpr (kVersion >= 11) {
      return net_.connect(context, device, handle, send_comm, &device_handle);
    } else if constexpr (kVersion == 10) {
      return net_.connect(device, &config_, handle, send_comm, &device_handle);
    } else if constexpr (kVersion >= 7) {
      return net_.connect(device, handle, send_comm, &device_handle);
    } else {
      return net_.connect(device, handle, send_comm);
    }
  }

  abi::Result Accept(void* listen_comm, void** recv_comm) override {
    const InCall call("accept");
    [[maybe_unused]] abi::NetDeviceHandle* device_handle = nullptr;
    if constexpr (kVersion >= 7) {
      return net_.accept(listen_comm, recv_comm, &device_handle);
    } else {
      return net_.accept(listen_comm, recv_comm);
    }
  }

  abi::Result RegMr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    const InCall call("regMr");
    using Registered = std::conditional_t<kVersion >= 8, size_t, int>;
    if (kVersion < 8 && bytes > INT_MAX) return abi::kInternalError;
    return net_.reg_mr(comm, data, static_cast<Registered>(bytes), type, mhandle);
  }

  abi::Result DeregMr(void* comm, void* mhandle) override {
    const InCall call("deregMr");
    return net_.dereg_mr(comm, mhandle);
  }

  abi::Result Isend(void* send_comm, void* data, size_t bytes, int tag, void* mhandle,
                    void** request) override {
    const InCall call("isend");
    if (kVersion < 9 && bytes > INT_MAX) return abi::kInternalError;
    if constexpr (kVersion >= 10) {
      return net_.isend(send_comm, data, bytes, tag, mhandle, nullptr, request);
    } else {
      return net_.isend(send_comm, data, static_cast<Size>(bytes), tag, mhandle, request);
    }
  }

  abi::Result Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle,
                    void** request) override {
    const InCall call("irecv");
    if (kVersion < 9 && bytes > INT_MAX) return abi::kInternalError;
    auto size = static_cast<Size>(bytes);
    if constexpr (kVersion >= 10) {
      return net_.irecv(recv_comm, 1, &data, &size, &tag, &mhandle, nullptr, request);
    } else {
      return net_.irecv(recv_comm, 1, &data, &size, &tag, &mhandle, request);
    }
  }

  abi::Result Test(void* request, int* done, int* sizes) override {
    const InCall call("test");
    return net_.test(request, done, sizes);
  }
  abi::Result CloseSend(void* send_comm) override {
    const InCall call("closeSend");
    return net_.close_send(send_comm);
  }
  abi::Result CloseRecv(void* recv_comm) override {
    const InCall call("closeRecv");
    return net_.close_recv(recv_comm);
  }
  abi::Result CloseListen(void* listen_comm) override {
    const InCall call("closeListen");
    return net_.close_listen(listen_comm);
  }

 private:
  using Size = std::conditional_t<kVersion >= 9, size_t, int>;

  SharedLibrary library_;
  const Net& net_;
  abi::NetCommConfig config_{};
};

template <int kVersion, typename Net, typename Properties>
std::unique_ptr<NetPlugin> MakeAdapter(SharedLibrary library, const void* exported) {
  return std::make_unique<Adapter<kVersion, Net, Properties>>(std::move(library), exported);
}

struct SupportedInterface {
  int version;
  std::unique_ptr<NetPlugin> (*make)(SharedLibrary library, const void* exported);
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

const char* NetPlugin::CallInProgress() { return call_in_progress.load(std::memory_order_relaxed); }

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
  const InCall call("dlopen");
  SharedLibrary library = SharedLibrary::Open(path, error);
  if (!library) {
    *error = "cannot be opened: " + *error;
    return nullptr;
  }
  for (const SupportedInterface& known : kInterfaces) {
    if (interface != 0 && interface != known.version) continue;
    const void* const exported = library.FindAddress(SymbolName(known.version).c_str());
    if (exported != nullptr) return known.make(std::move(library), exported);
  }
  *error = interface == 0 ? "exports no net interface that this program knows"
                          : "exports no " + SymbolName(interface) + " that this program knows";
  return nullptr;
}

}  // namespace nccltune::host::net
