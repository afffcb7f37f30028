// SPDX-License-Identifier: Apache-2.0
//
// The net interface's structs. Where native/abi has none of them yet, v6 (symbol ncclNetPlugin_v6,
// since NCCL 2.13) and v8 (ncclNetPlugin_v8, since 2.20) alone, as NCCL declares them.
#ifndef NCCLTUNE_HOST_NET_INTERFACE_STRUCTS_H_
#define NCCLTUNE_HOST_NET_INTERFACE_STRUCTS_H_

#if __has_include("abi/net_v12.h")

#define NCCLTUNE_HOST_NET_ALL_INTERFACES
#include "abi/net_v10.h"
#include "abi/net_v11.h"
#include "abi/net_v12.h"
#include "abi/net_v6.h"
#include "abi/net_v7.h"
#include "abi/net_v8.h"
#include "abi/net_v9.h"

#else

#include <cstddef>
#include <cstdint>

#include "abi/tuner_types.h"

namespace nccltune::abi {

struct NetPropertiesV6 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
};
static_assert(sizeof(NetPropertiesV6) == 48);

struct NetV6 {
  const char* name;
  Result (*init)(LogFunction log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV6* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, void* handle, void** send_comm);
  Result (*accept)(void* listen_comm, void** recv_comm);
  Result (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int count, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
};
static_assert(sizeof(NetV6) == 136);

struct NetPropertiesV8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetPropertiesV8) == 64);

struct NetDeviceHandle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(sizeof(NetDeviceHandle) == 32);

struct NetCommConfig {
  int traffic_class;
};

struct NetV8 {
  const char* name;
  Result (*init)(LogFunction log);
  Result (*devices)(int* count);
  Result (*get_properties)(int device, NetPropertiesV8* properties);
  Result (*listen)(int device, void* handle, void** listen_comm);
  Result (*connect)(int device, void* handle, void** send_comm, NetDeviceHandle** send_dev_comm);
  Result (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_dev_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int count, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int count, void* request);
};
static_assert(sizeof(NetV8) == 152);

}  // namespace nccltune::abi

#endif  // __has_include("abi/net_v12.h")

#endif  // NCCLTUNE_HOST_NET_INTERFACE_STRUCTS_H_
