// SPDX-License-Identifier: Apache-2.0
#include "abi/net_v11.h"
#include "common/export.h"
#include "net/plugin.h"
#include "net/profiler_event.h"

namespace nccltune::net {
namespace {

abi::Result Init(void** context, uint64_t /*communicator_id*/, abi::NetCommConfig* config,
                 abi::LogFunction log, abi::NetProfilerCallback profiler) {
  TakeProfiler(profiler);
  return plugin::Init(11, context, config, log);
}

abi::Result GetProperties(int device, abi::NetPropertiesV11* properties) {
  plugin::Properties facts = {};
  const abi::Result result = plugin::GetProperties(device, properties, &facts);
  if (result != abi::kSuccess) return result;
  *properties = {.name = facts.name,
                 .pci_path = facts.pci_path,
                 .guid = facts.guid,
                 .ptr_support = plugin::Properties::kPointerSupport,
                 .reg_is_global = plugin::Properties::kRegIsGlobal,
                 .force_flush = plugin::Properties::kForceFlush,
                 .speed = facts.speed_mbps,
                 .port = plugin::Properties::kPort,
                 .latency = plugin::Properties::kLatency,
                 .max_comms = plugin::Properties::kMaxComms,
                 .max_recvs = plugin::Properties::kMaxReceives,
                 .net_device_type = abi::kNetDeviceHost,
                 .net_device_version = abi::kNetDeviceNoVersion,
                 .v_device = plugin::MembersOf<abi::NetVDeviceOf4>(facts),
                 .max_p2p_bytes = plugin::Properties::kMaxBytes,
                 .max_coll_bytes = plugin::Properties::kMaxBytes,
                 .max_multi_request_size = plugin::Properties::kMaxMultiRequestSize};
  return abi::kSuccess;
}

abi::Result Connect(void* context, int device, void* handle, void** send_comm,
                    abi::NetDeviceHandle** /*send_device*/) {
  return plugin::Connect(context, device, handle, send_comm);
}

abi::Result Accept(void* listen_comm, void** recv_comm, abi::NetDeviceHandle** /*recv_device*/) {
  return plugin::Accept(listen_comm, recv_comm);
}

abi::Result RegMr(void* comm, void* /*data*/, size_t /*size*/, int type, void** mhandle) {
  return plugin::RegMr(comm, type, mhandle);
}

abi::Result Isend(void* send_comm, void* data, size_t size, int /*tag*/, void* /*mhandle*/,
                  void* phandle, void** request) {
  return plugin::Isend(send_comm, data, size, request, phandle);
}

abi::Result Irecv(void* recv_comm, int count, void** data, size_t* sizes, int* /*tags*/,
                  void** /*mhandles*/, void** phandles, void** request) {
  return plugin::Irecv(recv_comm, count, data, sizes, request,
                       phandles == nullptr ? nullptr : *phandles);
}

abi::Result MakeVDevice(int* device, abi::NetVDeviceOf4* members) {
  return plugin::MakeVDevice(device, members);
}

// How many flows a connection has does not depend on how many connections there are.
abi::Result SetNetAttr(void* /*context*/, abi::NetAttr* /*attributes*/) { return abi::kSuccess; }

}  // namespace
}  // namespace nccltune::net

using namespace nccltune::net;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::NetV11 ncclNetPlugin_v11;
const nccltune::abi::NetV11 ncclNetPlugin_v11 = {
    .name = plugin::kName,
    .init = Init,
    .devices = plugin::Devices,
    .get_properties = GetProperties,
    .listen = plugin::Listen,
    .connect = Connect,
    .accept = Accept,
    .reg_mr = RegMr,
    .reg_mr_dma_buf = nullptr,
    .dereg_mr = plugin::DeregMr,
    .isend = Isend,
    .irecv = Irecv,
    .iflush = plugin::Iflush,
    .test = plugin::Test,
    .close_send = plugin::CloseSend,
    .close_recv = plugin::CloseRecv,
    .close_listen = plugin::CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_v_device = MakeVDevice,
    .finalize = plugin::Finalize,
    .set_net_attr = SetNetAttr,
};
}
