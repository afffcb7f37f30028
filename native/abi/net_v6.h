// SPDX-License-Identifier: Apache-2.0
//
// Net interface v6, symbol ncclNetPlugin_v6, since NCCL 2.13.
// NCCL 2.13 to 2.18 look for this version first. Later NCCL versions use it if the plugin exports
// no newer symbol. This is the first version with DMA-BUF registration. This header is frozen: a
// change of layout needs a new version and a new header.
#ifndef NCCLTUNE_ABI_NET_V6_H_
#define NCCLTUNE_ABI_NET_V6_H_

#include <cstddef>
#include <cstdint>

#include "abi/net_types.h"

namespace nccltune::abi {

struct NetPropertiesV6 {
  const char* name;      // must be unique; the plugin owns the string
  const char* pci_path;  // the device's directory in sysfs; null if virtual
  uint64_t guid;         // identifies the chip; the same for all functions of the chip
  int ptr_support;       // bits of kPointer*
  int speed;             // Mb/s
  int port;
  float latency;  // us
  int max_comms;
  int max_recvs;  // largest number of buffers of one irecv
};
static_assert(offsetof(NetPropertiesV6, name) == 0);
static_assert(offsetof(NetPropertiesV6, pci_path) == 8);
static_assert(offsetof(NetPropertiesV6, guid) == 16);
static_assert(offsetof(NetPropertiesV6, ptr_support) == 24);
static_assert(offsetof(NetPropertiesV6, speed) == 28);
static_assert(offsetof(NetPropertiesV6, port) == 32);
static_assert(offsetof(NetPropertiesV6, latency) == 36);
static_assert(offsetof(NetPropertiesV6, max_comms) == 40);
static_assert(offsetof(NetPropertiesV6, max_recvs) == 44);
static_assert(sizeof(NetPropertiesV6) == 48);

struct NetV6 {
  const char* name;

  // Up to NCCL 2.27, called once, while the plugin is loaded. Since NCCL 2.28, called whenever a
  // communicator is created while no other communicator exists.
  Result (*init)(LogFunction log);
  Result (*devices)(int* count);

  // The plugin must set every field: NCCL passes uninitialised memory.
  Result (*get_properties)(int device, NetPropertiesV6* properties);

  // `handle` has kNetHandleBytes bytes. NCCL transfers it to the peer that connects.
  Result (*listen)(int device, void* handle, void** listen_comm);

  // connect and accept must not block. To wait, return success and a null comm. NCCL then calls the
  // same function again, connect with the same handle.
  Result (*connect)(int device, void* handle, void** send_comm);
  Result (*accept)(void* listen_comm, void** recv_comm);

  // `comm` is a send_comm or a recv_comm, `type` is one of kPointer*.
  Result (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);

  // Optional: the function pointer may be null.
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);

  // Success with a null *request means that NCCL must call again later.
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int count, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);

  // Called only for memory of type kPointerCuda.
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);

  // `sizes` may be null.
  Result (*test)(void* request, int* done, int* sizes);

  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
};

static_assert(offsetof(NetV6, name) == 0);
static_assert(offsetof(NetV6, init) == 8);
static_assert(offsetof(NetV6, devices) == 16);
static_assert(offsetof(NetV6, get_properties) == 24);
static_assert(offsetof(NetV6, listen) == 32);
static_assert(offsetof(NetV6, connect) == 40);
static_assert(offsetof(NetV6, accept) == 48);
static_assert(offsetof(NetV6, reg_mr) == 56);
static_assert(offsetof(NetV6, reg_mr_dma_buf) == 64);
static_assert(offsetof(NetV6, dereg_mr) == 72);
static_assert(offsetof(NetV6, isend) == 80);
static_assert(offsetof(NetV6, irecv) == 88);
static_assert(offsetof(NetV6, iflush) == 96);
static_assert(offsetof(NetV6, test) == 104);
static_assert(offsetof(NetV6, close_send) == 112);
static_assert(offsetof(NetV6, close_recv) == 120);
static_assert(offsetof(NetV6, close_listen) == 128);
static_assert(sizeof(NetV6) == 136);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_NET_V6_H_
