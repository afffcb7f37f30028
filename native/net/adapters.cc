// SPDX-License-Identifier: Apache-2.0
// The function tables of the net plugin, one for each version of the interface. NCCL finds the
// tables by symbol. The functions here adapt each version's signatures to plugin.h. All versions
// behave the same.
//
// An overloaded function such as Connect is in several tables: the type of the table's member
// selects the overload. The comment at each overload names its versions.
#include <cstddef>
#include <cstdint>

#include "abi/net.h"
#include "common/export.h"
#include "net/plugin.h"

namespace nccltune::net {
namespace {

// For v6 to v9 (NCCL 2.13 to 2.25).
template <int version>
abi::Result Init(abi::LogFunction log) {
  return plugin::Init(version, log);
}

// For v10 (NCCL 2.26), which adds the profiler callback.
template <int version>
abi::Result Init(abi::LogFunction log, abi::NetProfilerCallback /*profiler*/) {
  return plugin::Init(version, log);
}

// For v11 and later (since NCCL 2.28), which create one context for each communicator.
template <int version>
abi::Result Init(void** context, uint64_t /*communicator_id*/, abi::NetCommConfig* config,
                 abi::LogFunction log, abi::NetProfilerCallback /*profiler*/) {
  return plugin::Init(version, context, config, log);
}

// Sets every field that the version's struct has, because NCCL does not clear `properties`.
template <typename Properties>
abi::Result GetProperties(int device, Properties* properties) {
  using Ours = plugin::Properties;
  Ours facts = {};
  const abi::Result result = plugin::GetProperties(device, properties, &facts);
  if (result != abi::kSuccess) return result;
  Properties& filled = *properties;
  filled = {};
  filled.name = facts.name;
  filled.pci_path = facts.pci_path;
  filled.guid = facts.guid;
  filled.ptr_support = Ours::kPointerSupport;
  filled.speed = facts.speed_mbps;
  filled.port = Ours::kPort;
  filled.latency = Ours::kLatency;
  filled.max_comms = Ours::kMaxComms;
  filled.max_recvs = Ours::kMaxReceives;
  if constexpr (requires { filled.net_device_type; }) {  // since v7
    filled.net_device_type = abi::kNetDeviceHost;
    filled.net_device_version = abi::kNetDeviceNoVersion;
  }
  if constexpr (requires { filled.reg_is_global; }) {  // since v8
    filled.reg_is_global = Ours::kRegIsGlobal;
  }
  if constexpr (requires { filled.v_device; }) {  // since v9; eight members since v12, else four
    filled.force_flush = Ours::kForceFlush;
    filled.v_device = plugin::MembersOf<decltype(filled.v_device)>(facts);
    filled.max_p2p_bytes = Ours::kMaxBytes;
    filled.max_coll_bytes = Ours::kMaxBytes;
  }
  if constexpr (requires { filled.max_multi_request_size; }) {  // since v11
    filled.max_multi_request_size = Ours::kMaxMultiRequestSize;
  }
  if constexpr (requires { filled.rail_id; }) {  // since v12
    filled.rail_id = abi::kNetUndefined;
    filled.plane_id = abi::kNetUndefined;
  }
  return abi::kSuccess;
}

// For v6.
abi::Result Connect(int device, void* handle, void** send_comm) {
  return plugin::Connect(device, nullptr, handle, send_comm);
}

// For v7 to v9, which add a device handle.
abi::Result Connect(int device, void* handle, void** send_comm,
                    abi::NetDeviceHandle** /*send_device*/) {
  return plugin::Connect(device, nullptr, handle, send_comm);
}

// For v10, which adds the traffic class of the connection.
abi::Result Connect(int device, abi::NetCommConfig* config, void* handle, void** send_comm,
                    abi::NetDeviceHandle** /*send_device*/) {
  return plugin::Connect(device, config, handle, send_comm);
}

// For v11 and later, where the traffic class is part of the context.
abi::Result Connect(void* context, int device, void* handle, void** send_comm,
                    abi::NetDeviceHandle** /*send_device*/) {
  return plugin::Connect(context, device, handle, send_comm);
}

// For v6, and with a device handle for v7 and later.
using plugin::Accept;
abi::Result Accept(void* listen_comm, void** recv_comm, abi::NetDeviceHandle** /*recv_device*/) {
  return plugin::Accept(listen_comm, recv_comm);
}

// `Size` is int up to v7 and size_t since v8.
template <typename Size>
abi::Result RegMr(void* comm, void* /*data*/, Size /*size*/, int type, void** mhandle) {
  return plugin::RegMr(comm, type, mhandle);
}

// For v6 to v9. `Size` is int up to v8 and size_t in v9.
template <typename Size>
abi::Result Isend(void* send_comm, void* data, Size size, int /*tag*/, void* /*mhandle*/,
                  void** request) {
  return plugin::Isend(send_comm, data, static_cast<size_t>(size), request);
}

// For v10 and later, which add the profiler's handle.
abi::Result Isend(void* send_comm, void* data, size_t size, int /*tag*/, void* /*mhandle*/,
                  void* /*phandle*/, void** request) {
  return plugin::Isend(send_comm, data, size, request);
}

// For v6 to v9. `Size` is int up to v8 and size_t in v9.
template <typename Size>
abi::Result Irecv(void* recv_comm, int count, void** data, Size* sizes, int* /*tags*/,
                  void** /*mhandles*/, void** request) {
  return plugin::Irecv(recv_comm, count, data, sizes, request);
}

// For v10 and later, which add the profiler's handles.
abi::Result Irecv(void* recv_comm, int count, void** data, size_t* sizes, int* /*tags*/,
                  void** /*mhandles*/, void** /*phandles*/, void** request) {
  return plugin::Irecv(recv_comm, count, data, sizes, request);
}

// For v11 and later. The attributes are ignored: our number of flows does not depend on the number
// of connections.
abi::Result SetNetAttr(void* /*context*/, abi::NetAttr* /*attributes*/) { return abi::kSuccess; }

// The struct of one version. The type of each member selects the overload.
template <typename Net, int version>
constexpr Net Table() noexcept {
  Net net = {};
  net.name = plugin::kName;
  net.init = Init<version>;
  net.devices = plugin::Devices;
  net.get_properties = GetProperties;
  net.listen = plugin::Listen;
  net.connect = Connect;
  net.accept = Accept;
  net.reg_mr = RegMr;
  net.dereg_mr = plugin::DeregMr;
  net.isend = Isend;
  net.irecv = Irecv;
  net.iflush = plugin::Iflush;
  net.test = plugin::Test;
  net.close_send = plugin::CloseSend;
  net.close_recv = plugin::CloseRecv;
  net.close_listen = plugin::CloseListen;
  if constexpr (version >= 9) net.make_v_device = plugin::MakeVDevice;
  if constexpr (version >= 11) {
    net.finalize = plugin::Finalize;
    net.set_net_attr = SetNetAttr;
  }
  return net;
}

}  // namespace

extern "C" NCCLTUNE_EXPORT constinit const abi::NetV6 ncclNetPlugin_v6 = Table<abi::NetV6, 6>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV7 ncclNetPlugin_v7 = Table<abi::NetV7, 7>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV8 ncclNetPlugin_v8 = Table<abi::NetV8, 8>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV9 ncclNetPlugin_v9 = Table<abi::NetV9, 9>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV10 ncclNetPlugin_v10 = Table<abi::NetV10, 10>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV11 ncclNetPlugin_v11 = Table<abi::NetV11, 11>();
extern "C" NCCLTUNE_EXPORT constinit const abi::NetV12 ncclNetPlugin_v12 = Table<abi::NetV12, 12>();

}  // namespace nccltune::net
