// SPDX-License-Identifier: Apache-2.0
#include "abi/net_v6.h"
#include "common/export.h"
#include "net/plugin.h"

namespace nccltune::net {
namespace {

abi::Result Init(abi::LogFunction log) { return plugin::Init(6, log); }

abi::Result GetProperties(int device, abi::NetPropertiesV6* properties) {
  plugin::Properties facts = {};
  const abi::Result result = plugin::GetProperties(device, properties, &facts);
  if (result != abi::kSuccess) return result;
  *properties = {.name = facts.name,
                 .pci_path = facts.pci_path,
                 .guid = facts.guid,
                 .ptr_support = plugin::Properties::kPointerSupport,
                 .speed = facts.speed_mbps,
                 .port = plugin::Properties::kPort,
                 .latency = plugin::Properties::kLatency,
                 .max_comms = plugin::Properties::kMaxComms,
                 .max_recvs = plugin::Properties::kMaxReceives};
  return abi::kSuccess;
}

abi::Result Connect(int device, void* handle, void** send_comm) {
  return plugin::Connect(device, nullptr, handle, send_comm);
}

abi::Result RegMr(void* comm, void* /*data*/, int /*size*/, int type, void** mhandle) {
  return plugin::RegMr(comm, type, mhandle);
}

abi::Result Isend(void* send_comm, void* data, int size, int /*tag*/, void* /*mhandle*/,
                  void** request) {
  return plugin::Isend(send_comm, data, static_cast<size_t>(size), request);
}

abi::Result Irecv(void* recv_comm, int count, void** data, int* sizes, int* /*tags*/,
                  void** /*mhandles*/, void** request) {
  return plugin::Irecv(recv_comm, count, data, sizes, request);
}

}  // namespace
}  // namespace nccltune::net

using namespace nccltune::net;  // NOLINT(google-build-using-namespace)

extern "C" {
NCCLTUNE_EXPORT extern const nccltune::abi::NetV6 ncclNetPlugin_v6;
const nccltune::abi::NetV6 ncclNetPlugin_v6 = {
    .name = plugin::kName,
    .init = Init,
    .devices = plugin::Devices,
    .get_properties = GetProperties,
    .listen = plugin::Listen,
    .connect = Connect,
    .accept = plugin::Accept,
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
};
}
