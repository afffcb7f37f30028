// SPDX-License-Identifier: Apache-2.0
//
// Types that all versions of NCCL's net interface share. These are our own declarations of NCCL's
// public interface, checked against NCCL 2.13 to 2.30.
#ifndef NCCLTUNE_ABI_NET_TYPES_H_
#define NCCLTUNE_ABI_NET_TYPES_H_

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

// ncclProfilerCallback_t, since v10. kNetEventStart creates `event`, which the other calls pass
// back. `parent` is the phandle of isend or irecv.
enum NetProfilerEvent : int {
  kNetEventStart = 0,
  kNetEventStop = 1,
  kNetEventUpdate = 2,
  kNetEventUpdateAndStop = 3,
};
using NetProfilerCallback = Result (*)(void** event, int type, void* parent, int64_t plugin,
                                       void* data);

static_assert(sizeof(NetDeviceType) == 4 && sizeof(NetProfilerEvent) == 4);

}  // namespace nccltune::abi

#endif  // NCCLTUNE_ABI_NET_TYPES_H_
