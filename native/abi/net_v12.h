// SPDX-License-Identifier: Apache-2.0
//
// Net interface v12, symbol ncclNetPlugin_v12, since NCCL 2.30.
// NCCL 2.30 looks for this version first.
// This version is like v11, but has eight members per device, rails and planes.
// This header is frozen: a change of layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_NET_V12_H_
#define NCCLTUNE_ABI_NET_V12_H_

#include <cstddef>
#include <cstdint>

#include "abi/net_types.h"

namespace nccltune::abi {

struct NetPropertiesV12 {
  const char* name;      // must be unique; the plugin owns the string
  const char* pci_path;  // the device's directory in sysfs; null if virtual
  uint64_t guid;         // identifies the chip; the same for all functions of the chip
  int ptr_support;       // bits of kPointer*
  int reg_is_global;     // 1: a registration is valid for all connections
  int force_flush;
  int speed;  // Mb/s
  int port;
  float latency;  // us
  int max_comms;
  int max_recvs;  // largest number of buffers of one irecv
  NetDeviceType net_device_type;
  int net_device_version;
  NetVDeviceOf8 v_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
  int16_t rail_id;   // kNetUndefined: not set
  int16_t plane_id;  // kNetUndefined: not set
};
static_assert(offsetof(NetPropertiesV12, name) == 0);
static_assert(offsetof(NetPropertiesV12, pci_path) == 8);
static_assert(offsetof(NetPropertiesV12, guid) == 16);
static_assert(offsetof(NetPropertiesV12, ptr_support) == 24);
static_assert(offsetof(NetPropertiesV12, reg_is_global) == 28);
static_assert(offsetof(NetPropertiesV12, force_flush) == 32);
static_assert(offsetof(NetPropertiesV12, speed) == 36);
static_assert(offsetof(NetPropertiesV12, port) == 40);
static_assert(offsetof(NetPropertiesV12, latency) == 44);
static_assert(offsetof(NetPropertiesV12, max_comms) == 48);
static_assert(offsetof(NetPropertiesV12, max_recvs) == 52);
static_assert(offsetof(NetPropertiesV12, net_device_type) == 56);
static_assert(offsetof(NetPropertiesV12, net_device_version) == 60);
static_assert(offsetof(NetPropertiesV12, v_device) == 64);
static_assert(offsetof(NetPropertiesV12, max_p2p_bytes) == 104);
static_assert(offsetof(NetPropertiesV12, max_coll_bytes) == 112);
static_assert(offsetof(NetPropertiesV12, max_multi_request_size) == 120);
static_assert(offsetof(NetPropertiesV12, rail_id) == 124);
static_assert(offsetof(NetPropertiesV12, plane_id) == 126);
static_assert(sizeof(NetPropertiesV12) == 128);

struct NetV12 {
  const char* name;

  // Called once per communicator, except for communicators made by ncclCommSplit with shared
  // resources: they use their parent's context.
  Result (*init)(void** context, uint64_t communicator_id, NetCommConfig* config, LogFunction log,
                 NetProfilerCallback profiler);

  // Sets *count to the number of devices: the plain devices, and the devices that make_v_device has
  // created so far. NCCL takes the increase between two calls as the number of merged devices and
  // derives the indices of further devices from it.
  Result (*devices)(int* count);

  // The plugin must set every field: NCCL passes uninitialised memory.
  Result (*get_properties)(int device, NetPropertiesV12* properties);

  // `handle` has kNetHandleBytes bytes. NCCL transfers it to the peer that connects.
  Result (*listen)(void* context, int device, void* handle, void** listen_comm);

  // connect and accept must not block. To wait, return success and a null comm. NCCL then calls the
  // same function again, connect with the same handle. `send_device` and `recv_device` may be null.
  Result (*connect)(void* context, int device, void* handle, void** send_comm,
                    NetDeviceHandle** send_device);
  Result (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);

  // `comm` is a send_comm or a recv_comm, `type` is one of kPointer*.
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);

  // Optional: the function pointer may be null.
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);

  // Success with a null *request means that NCCL must call again later. `phandle` and `phandles`
  // may be null.
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle,
                  void** request);

  // *request may hold kNetOptionalReceiveCompletion before the call.
  Result (*irecv)(void* recv_comm, int count, void** data, size_t* sizes, int* tags,
                  void** mhandles, void** phandles, void** request);

  // Called only for memory of type kPointerCuda.
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);

  // `sizes` may be null.
  Result (*test)(void* request, int* done, int* sizes);

  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);

  // The next two functions are optional. NCCL calls them only for networks that GPU code accesses.
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int count, void* request);

  // Optional. Sets *device to the index of the new device.
  Result (*make_v_device)(int* device, NetVDeviceOf8* members);

  // finalize is required; set_net_attr is optional.
  Result (*finalize)(void* context);
  Result (*set_net_attr)(void* context, NetAttr* attributes);
};

static_assert(offsetof(NetV12, name) == 0);
static_assert(offsetof(NetV12, init) == 8);
static_assert(offsetof(NetV12, devices) == 16);
static_assert(offsetof(NetV12, get_properties) == 24);
static_assert(offsetof(NetV12, listen) == 32);
static_assert(offsetof(NetV12, connect) == 40);
static_assert(offsetof(NetV12, accept) == 48);
static_assert(offsetof(NetV12, reg_mr) == 56);
static_assert(offsetof(NetV12, reg_mr_dma_buf) == 64);
static_assert(offsetof(NetV12, dereg_mr) == 72);
static_assert(offsetof(NetV12, isend) == 80);
static_assert(offsetof(NetV12, irecv) == 88);
static_assert(offsetof(NetV12, iflush) == 96);
static_assert(offsetof(NetV12, test) == 104);
static_assert(offsetof(NetV12, close_send) == 112);
static_assert(offsetof(NetV12, close_recv) == 120);
static_assert(offsetof(NetV12, close_listen) == 128);
static_assert(offsetof(NetV12, get_device_mr) == 136);
static_assert(offsetof(NetV12, irecv_consumed) == 144);
static_assert(offsetof(NetV12, make_v_device) == 152);
static_assert(offsetof(NetV12, finalize) == 160);
static_assert(offsetof(NetV12, set_net_attr) == 168);
static_assert(sizeof(NetV12) == 176);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_NET_V12_H_
