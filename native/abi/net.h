// SPDX-License-Identifier: Apache-2.0
// NCCL's net plugin interface, v6 to v12. These are our own declarations of NCCL's public
// interface, checked against NCCL 2.13 to 2.30.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/nccl_types.h"

namespace nccltune::abi {

// NCCL_NET_HANDLE_MAXSIZE: size of the handle that a listener passes to its peer.
inline constexpr size_t kNetHandleBytes = 128;

// NCCL_NET_MAX_REQUESTS: outstanding requests per connection; 8 before NCCL 2.19.
inline constexpr int kNetMaxRequests = 32;

// NCCL_MAX_NET_SIZE_BYTES: the largest max_p2p_bytes and max_coll_bytes that NCCL accepts.
// NCCL also rejects 0.
inline constexpr size_t kNetLargestMessage = size_t{1} << 40U;

// NCCL_NET_OPTIONAL_RECV_COMPLETION: the value of irecv's *request before the call (since v9), if
// NCCL itself checks the memory for arrived data. A plugin that cannot post the receive yet must
// set *request to null.
inline constexpr uintptr_t kNetOptionalReceiveCompletion = 0x1;

// NCCL_PTR_*: kinds of memory, and the bits of ptr_support.
inline constexpr int kPointerHost = 0x1;
inline constexpr int kPointerCuda = 0x2;
inline constexpr int kPointerDmaBuf = 0x4;

// NCCL_NET_TRAFFIC_CLASS_UNDEF, NCCL_NET_ATTR_UNDEF, NCCL_NET_ID_UNDEF.
inline constexpr int kNetUndefined = -1;

// ncclNetDeviceType: whether the CPU or GPU code receives the data. Since v7.
enum NetDeviceType : int { kNetDeviceHost = 0, kNetDeviceUnpack = 1 };

// NCCL_NET_DEVICE_INVALID_VERSION: the value of NetDeviceHandle::version and of the property
// net_device_version if the type is kNetDeviceHost.
inline constexpr int kNetDeviceNoVersion = 0;

// ncclNetDeviceHandle_t, since v7: how GPU code accesses a connection. Not used for kNetDeviceHost.
struct NetDeviceHandle {
  NetDeviceType type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(offsetof(NetDeviceHandle, type) == 0);
static_assert(offsetof(NetDeviceHandle, version) == 4);
static_assert(offsetof(NetDeviceHandle, handle) == 8);
static_assert(offsetof(NetDeviceHandle, size) == 16);
static_assert(offsetof(NetDeviceHandle, needs_proxy_progress) == 24);
static_assert(sizeof(NetDeviceHandle) == 32);

// ncclNetVDeviceProps_t: the members of a device, as device indices. A plain device has itself as
// its only member. A device has at most four members from v9 to v11, and at most eight since v12.
struct NetVDeviceOf4 {
  int count;
  int devices[4];
};
static_assert(offsetof(NetVDeviceOf4, count) == 0);
static_assert(offsetof(NetVDeviceOf4, devices) == 4);
static_assert(sizeof(NetVDeviceOf4) == 20);

struct NetVDeviceOf8 {
  int count;
  int devices[8];
};
static_assert(offsetof(NetVDeviceOf8, count) == 0);
static_assert(offsetof(NetVDeviceOf8, devices) == 4);
static_assert(sizeof(NetVDeviceOf8) == 36);

// ncclNetCommConfig_t, since v10: a communicator's options.
struct NetCommConfig {
  int traffic_class;  // kNetUndefined: not set
};
static_assert(offsetof(NetCommConfig, traffic_class) == 0);
static_assert(sizeof(NetCommConfig) == 4);

// ncclNetCommAttr_t and ncclNetAttr_t, since v11: properties of the connections that NCCL will
// make. A value is kNetUndefined if it is unknown.
struct NetCommAttr {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};
static_assert(offsetof(NetCommAttr, max_concurrent_peers) == 0);
static_assert(offsetof(NetCommAttr, min_concurrent_peers) == 4);
static_assert(offsetof(NetCommAttr, max_flows_per_peer) == 8);
static_assert(offsetof(NetCommAttr, min_flows_per_peer) == 12);
static_assert(sizeof(NetCommAttr) == 16);

struct NetAttr {
  NetCommAttr send;
  NetCommAttr receive;
  uint32_t operation;
  uint32_t algorithm;
  uint32_t protocol;
};
static_assert(offsetof(NetAttr, send) == 0);
static_assert(offsetof(NetAttr, receive) == 16);
static_assert(offsetof(NetAttr, operation) == 32);
static_assert(offsetof(NetAttr, algorithm) == 36);
static_assert(offsetof(NetAttr, protocol) == 40);
static_assert(sizeof(NetAttr) == 44);

// ncclProfilerCallback_t, since v10. `parent` is the phandle of isend or irecv.
using NetProfilerCallback = Result (*)(void** event, int type, void* parent, int64_t plugin,
                                       void* data);

static_assert(sizeof(NetDeviceType) == 4);

// The interface exists in seven versions: NCCL looks for the symbol ncclNetPlugin_v<version> of its
// newest version first, and then for older ones. What follows states the properties and functions
// of each version by what it changes. All of this is frozen: a change of layout needs a new
// version.
//
//   version  newest in NCCL  adds
//   v6       2.13 to 2.18    DMA-BUF registration
//   v7       2.19            networks that GPU code accesses: a device handle for each connection
//   v8       2.20 to 2.23    reg_is_global, and a size_t for registered memory
//   v9       2.24, 2.25      merged devices, message sizes as size_t, receives with optional
//                            completion
//   v10      2.26, 2.27      the traffic class at connect, the profiler's callback and handles
//   v11      2.28, 2.29      a context for each communicator, which init makes and finalize ends
//   v12      2.30            eight members per device, rails and planes

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

struct NetPropertiesV7 : NetPropertiesV6 {
  NetDeviceType net_device_type;
  int net_device_version;
};

struct NetPropertiesV8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;  // 1: a registration is valid for all connections
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  NetDeviceType net_device_type;
  int net_device_version;
};

template <typename VDevice>
struct NetPropertiesSinceV9 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  NetDeviceType net_device_type;
  int net_device_version;
  VDevice v_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};
using NetPropertiesV9 = NetPropertiesSinceV9<NetVDeviceOf4>;
using NetPropertiesV10 = NetPropertiesV9;

struct NetPropertiesV11 : NetPropertiesV9 {
  int max_multi_request_size;
};

struct NetPropertiesV12 : NetPropertiesSinceV9<NetVDeviceOf8> {
  int max_multi_request_size;
  int16_t rail_id;   // kNetUndefined: not set
  int16_t plane_id;  // kNetUndefined: not set
};

// The types that differ between versions.
struct NetTypesV6 {
  using Properties = NetPropertiesV6;
  using Init = Result(LogFunction log);
  using Listen = Result(int device, void* handle, void** listen_comm);
  using Connect = Result(int device, void* handle, void** send_comm);
  using Accept = Result(void* listen_comm, void** recv_comm);
  using RegMr = Result(void* comm, void* data, int size, int type, void** mhandle);
  using Isend = Result(void* send_comm, void* data, int size, int tag, void* mhandle,
                       void** request);
  using Irecv = Result(void* recv_comm, int count, void** data, int* sizes, int* tags,
                       void** mhandles, void** request);
};
struct NetTypesV7 : NetTypesV6 {
  using Properties = NetPropertiesV7;
  using Connect = Result(int device, void* handle, void** send_comm, NetDeviceHandle** send_device);
  using Accept = Result(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
};
struct NetTypesV8 : NetTypesV7 {
  using Properties = NetPropertiesV8;
  using RegMr = Result(void* comm, void* data, size_t size, int type, void** mhandle);
};
struct NetTypesV9 : NetTypesV8 {
  using Properties = NetPropertiesV9;
  using VDevice = NetVDeviceOf4;
  using Isend = Result(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                       void** request);
  using Irecv = Result(void* recv_comm, int count, void** data, size_t* sizes, int* tags,
                       void** mhandles, void** request);
};
struct NetTypesV10 : NetTypesV9 {
  using Init = Result(LogFunction log, NetProfilerCallback profiler);
  using Connect = Result(int device, NetCommConfig* config, void* handle, void** send_comm,
                         NetDeviceHandle** send_device);
  using Isend = Result(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                       void* phandle, void** request);
  using Irecv = Result(void* recv_comm, int count, void** data, size_t* sizes, int* tags,
                       void** mhandles, void** phandles, void** request);
};
struct NetTypesV11 : NetTypesV10 {
  using Properties = NetPropertiesV11;
  using Init = Result(void** context, uint64_t communicator_id, NetCommConfig* config,
                      LogFunction log, NetProfilerCallback profiler);
  using Listen = Result(void* context, int device, void* handle, void** listen_comm);
  using Connect = Result(void* context, int device, void* handle, void** send_comm,
                         NetDeviceHandle** send_device);
};
struct NetTypesV12 : NetTypesV11 {
  using Properties = NetPropertiesV12;
  using VDevice = NetVDeviceOf8;
};

template <typename Types>
struct NetFunctions {
  const char* name;

  // Up to v10, called once while the plugin is loaded (up to NCCL 2.27), or whenever a communicator
  // is created while no other exists (since NCCL 2.28). Since v11, called once per communicator,
  // except for those made by ncclCommSplit with shared resources: they use their parent's context.
  typename Types::Init* init;

  // Sets *count to the number of devices: the plain devices, and the devices that make_v_device has
  // created so far. NCCL takes the increase between two calls as the number of merged devices and
  // derives the indices of further devices from it.
  Result (*devices)(int* count);

  // The plugin must set every field: NCCL passes uninitialised memory.
  Result (*get_properties)(int device, typename Types::Properties* properties);

  // `handle` has kNetHandleBytes bytes. NCCL transfers it to the peer that connects.
  typename Types::Listen* listen;

  // connect and accept must not block. To wait, return success and a null comm. NCCL then calls the
  // same function again, connect with the same handle. `config`, `send_device` and `recv_device`
  // may be null.
  typename Types::Connect* connect;
  typename Types::Accept* accept;

  // `comm` is a send_comm or a recv_comm, `type` is one of kPointer*. reg_mr_dma_buf is optional:
  // the function pointer may be null.
  typename Types::RegMr* reg_mr;
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);

  // Success with a null *request means that NCCL must call again later. `phandle` and `phandles`
  // may be null. Since v9, *request of irecv may hold kNetOptionalReceiveCompletion before the
  // call.
  typename Types::Isend* isend;
  typename Types::Irecv* irecv;

  // Called only for memory of type kPointerCuda.
  Result (*iflush)(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request);

  // `sizes` may be null.
  Result (*test)(void* request, int* done, int* sizes);

  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
};

// Both functions are optional. NCCL calls them only for networks that GPU code accesses.
template <typename Types>
struct NetFunctionsSinceV7 : NetFunctions<Types> {
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int count, void* request);
};

// Optional. Sets *device to the index of the new device.
template <typename Types>
struct NetFunctionsSinceV9 : NetFunctionsSinceV7<Types> {
  Result (*make_v_device)(int* device, typename Types::VDevice* members);
};

// finalize is required; set_net_attr is optional.
template <typename Types>
struct NetFunctionsSinceV11 : NetFunctionsSinceV9<Types> {
  Result (*finalize)(void* context);
  Result (*set_net_attr)(void* context, NetAttr* attributes);
};

using NetV6 = NetFunctions<NetTypesV6>;
using NetV7 = NetFunctionsSinceV7<NetTypesV7>;
using NetV8 = NetFunctionsSinceV7<NetTypesV8>;
using NetV9 = NetFunctionsSinceV9<NetTypesV9>;
using NetV10 = NetFunctionsSinceV9<NetTypesV10>;
using NetV11 = NetFunctionsSinceV11<NetTypesV11>;
using NetV12 = NetFunctionsSinceV11<NetTypesV12>;

// Every offset, also in structs with a base, for which offsetof is conditionally supported.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

template <typename Net>
constexpr bool HasTheOffsetsOfV6() {
  return offsetof(Net, name) == 0 && offsetof(Net, init) == 8 && offsetof(Net, devices) == 16 &&
         offsetof(Net, get_properties) == 24 && offsetof(Net, listen) == 32 &&
         offsetof(Net, connect) == 40 && offsetof(Net, accept) == 48 &&
         offsetof(Net, reg_mr) == 56 && offsetof(Net, reg_mr_dma_buf) == 64 &&
         offsetof(Net, dereg_mr) == 72 && offsetof(Net, isend) == 80 &&
         offsetof(Net, irecv) == 88 && offsetof(Net, iflush) == 96 && offsetof(Net, test) == 104 &&
         offsetof(Net, close_send) == 112 && offsetof(Net, close_recv) == 120 &&
         offsetof(Net, close_listen) == 128;
}
static_assert(HasTheOffsetsOfV6<NetV6>() && sizeof(NetV6) == 136);

template <typename Net>
constexpr bool HasTheOffsetsOfV7() {
  return HasTheOffsetsOfV6<Net>() && offsetof(Net, get_device_mr) == 136 &&
         offsetof(Net, irecv_consumed) == 144;
}
static_assert(HasTheOffsetsOfV7<NetV7>() && sizeof(NetV7) == 152);
static_assert(HasTheOffsetsOfV7<NetV8>() && sizeof(NetV8) == 152);

template <typename Net>
constexpr bool HasTheOffsetsOfV9() {
  return HasTheOffsetsOfV7<Net>() && offsetof(Net, make_v_device) == 152;
}
static_assert(HasTheOffsetsOfV9<NetV9>() && sizeof(NetV9) == 160);
static_assert(HasTheOffsetsOfV9<NetV10>() && sizeof(NetV10) == 160);

template <typename Net>
constexpr bool HasTheOffsetsOfV11() {
  return HasTheOffsetsOfV9<Net>() && offsetof(Net, finalize) == 160 &&
         offsetof(Net, set_net_attr) == 168;
}
static_assert(HasTheOffsetsOfV11<NetV11>() && sizeof(NetV11) == 176);
static_assert(HasTheOffsetsOfV11<NetV12>() && sizeof(NetV12) == 176);

// `at`: the offset of `speed`, which properties of v8 and v9 are inserted before.
template <typename Properties>
constexpr bool HasPropertiesOfV6(size_t at) {
  return offsetof(Properties, name) == 0 && offsetof(Properties, pci_path) == 8 &&
         offsetof(Properties, guid) == 16 && offsetof(Properties, ptr_support) == 24 &&
         offsetof(Properties, speed) == at && offsetof(Properties, port) == at + 4 &&
         offsetof(Properties, latency) == at + 8 && offsetof(Properties, max_comms) == at + 12 &&
         offsetof(Properties, max_recvs) == at + 16;
}
static_assert(HasPropertiesOfV6<NetPropertiesV6>(28) && sizeof(NetPropertiesV6) == 48);

template <typename Properties>
constexpr bool HasPropertiesOfV7(size_t at) {
  return HasPropertiesOfV6<Properties>(at) && offsetof(Properties, net_device_type) == at + 20 &&
         offsetof(Properties, net_device_version) == at + 24;
}
static_assert(HasPropertiesOfV7<NetPropertiesV7>(28) && sizeof(NetPropertiesV7) == 56);
static_assert(HasPropertiesOfV7<NetPropertiesV8>(32) && sizeof(NetPropertiesV8) == 64);
static_assert(offsetof(NetPropertiesV8, reg_is_global) == 28);

// `bytes`: the offset of max_p2p_bytes, which is behind the members.
template <typename Properties>
constexpr bool HasPropertiesOfV9(size_t bytes) {
  return HasPropertiesOfV7<Properties>(36) && offsetof(Properties, reg_is_global) == 28 &&
         offsetof(Properties, force_flush) == 32 && offsetof(Properties, v_device) == 64 &&
         offsetof(Properties, max_p2p_bytes) == bytes &&
         offsetof(Properties, max_coll_bytes) == bytes + 8;
}
static_assert(HasPropertiesOfV9<NetPropertiesV9>(88) && sizeof(NetPropertiesV9) == 104);
static_assert(HasPropertiesOfV9<NetPropertiesV11>(88) && sizeof(NetPropertiesV11) == 112);
static_assert(offsetof(NetPropertiesV11, max_multi_request_size) == 104);
static_assert(HasPropertiesOfV9<NetPropertiesV12>(104) && sizeof(NetPropertiesV12) == 128);
static_assert(offsetof(NetPropertiesV12, max_multi_request_size) == 120);
static_assert(offsetof(NetPropertiesV12, rail_id) == 124);
static_assert(offsetof(NetPropertiesV12, plane_id) == 126);

#pragma GCC diagnostic pop

}  // namespace nccltune::abi
