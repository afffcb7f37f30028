// SPDX-License-Identifier: Apache-2.0
//
// Net interface v8, symbol ncclNetPlugin_v8, since NCCL 2.20.
// Native in 2.20 to 2.23; accepted later when no newer symbol is exported.
// Adds reg_is_global, and a size_t for registered memory.
// Frozen: a change of layout is a new version and a new header.
#ifndef NCCLTUNE_ABI_NET_V8_H_
#define NCCLTUNE_ABI_NET_V8_H_

#include <cstddef>
#include <cstdint>

#include "abi/net_types.h"

namespace nccltune::abi {

struct NetPropertiesV8 {
  const char* name;      // unique; belongs to the plugin and must stay
  const char* pci_path;  // the device's folder in sysfs; null: virtual
  uint64_t guid;         // of the chip, the same for all its functions
  int ptr_support;       // bits of kPointer*
  int reg_is_global;     // 1: registered for every connection at once
  int speed;             // Mb/s
  int port;
  float latency;  // us
  int max_comms;
  int max_recvs;  // buffers of one irecv
  NetDeviceType net_device_type;
  int net_device_version;
};
static_assert(offsetof(NetPropertiesV8, name) == 0);
static_assert(offsetof(NetPropertiesV8, pci_path) == 8);
static_assert(offsetof(NetPropertiesV8, guid) == 16);
static_assert(offsetof(NetPropertiesV8, ptr_support) == 24);
static_assert(offsetof(NetPropertiesV8, reg_is_global) == 28);
static_assert(offsetof(NetPropertiesV8, speed) == 32);
static_assert(offsetof(NetPropertiesV8, port) == 36);
static_assert(offsetof(NetPropertiesV8, latency) == 40);
static_assert(offsetof(NetPropertiesV8, max_comms) == 44);
static_assert(offsetof(NetPropertiesV8, max_recvs) == 48);
static_assert(offsetof(NetPropertiesV8, net_device_type) == 52);
static_assert(offsetof(NetPropertiesV8, net_device_version) == 56);
static_assert(sizeof(NetPropertiesV8) == 64);

struct NetV8 {
  const char* name;

  // Once while the plugin is loaded; NCCL 2.28 and later: once while any communicator lives.
  Result (*init)(LogFunction log);
  Result (*devices)(int* count);

  // Every field is the plugin's to set: NCCL passes memory that it did not clear.
  Result (*get_properties)(int device, NetPropertiesV8* properties);

  // `handle` has room for kNetHandleBytes and travels to the peer that connects.
  Result (*listen)(int device, void* handle, void** listen_comm);

  // Neither may wait: success with a null comm, and NCCL calls again with the same handle.
  // `send_device` and `recv_device` may be null.
  Result (*connect)(int device, void* handle, void** send_comm, NetDeviceHandle** send_device);
  Result (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);

  // `comm` is a send_comm or a recv_comm, `type` one of kPointer*.
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);

  // Optional (may be null).
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);

  // *request null after success: "not now", and NCCL calls again.
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int count, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);

  // Only of memory of kPointerCuda.
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);

  // `sizes` may be null.
  Result (*test)(void* request, int* done, int* sizes);

  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);

  // Optional, for networks that code on the GPU takes part in.
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int count, void* request);
};

static_assert(offsetof(NetV8, name) == 0);
static_assert(offsetof(NetV8, init) == 8);
static_assert(offsetof(NetV8, devices) == 16);
static_assert(offsetof(NetV8, get_properties) == 24);
static_assert(offsetof(NetV8, listen) == 32);
static_assert(offsetof(NetV8, connect) == 40);
static_assert(offsetof(NetV8, accept) == 48);
static_assert(offsetof(NetV8, reg_mr) == 56);
static_assert(offsetof(NetV8, reg_mr_dma_buf) == 64);
static_assert(offsetof(NetV8, dereg_mr) == 72);
static_assert(offsetof(NetV8, isend) == 80);
static_assert(offsetof(NetV8, irecv) == 88);
static_assert(offsetof(NetV8, iflush) == 96);
static_assert(offsetof(NetV8, test) == 104);
static_assert(offsetof(NetV8, close_send) == 112);
static_assert(offsetof(NetV8, close_recv) == 120);
static_assert(offsetof(NetV8, close_listen) == 128);
static_assert(offsetof(NetV8, get_device_mr) == 136);
static_assert(offsetof(NetV8, irecv_consumed) == 144);
static_assert(sizeof(NetV8) == 152);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_NET_V8_H_
