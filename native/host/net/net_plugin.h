// SPDX-License-Identifier: Apache-2.0
// A net plugin of any interface version, called as NCCL's own wrappers call it.
#ifndef NCCLTUNE_HOST_NET_NET_PLUGIN_H_
#define NCCLTUNE_HOST_NET_NET_PLUGIN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/tuner_types.h"

namespace nccltune::host::net {

inline constexpr size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kPointerHost = 1;       // NCCL_PTR_HOST
inline constexpr int kMostRecvs = 8;  // NCCL_PROXY_MAX_SUBS: entries of the sizes given to test

// What NCCL passes in irecv's request where it does not need to learn of the completion (v9 on).
inline void* OptionalCompletion() { return reinterpret_cast<void*>(uintptr_t{1}); }

// "remote error" for 6; "result 9" for a number that NCCL does not have.
std::string ResultName(int result);

// What every version tells, and 0 or -1 where this one does not.
struct NetProperties {
  std::string name;
  std::string pci_path;
  uint64_t guid = 0;
  int ptr_support = 0;
  int speed = 0;
  int port = 0;
  float latency = 0;
  int max_comms = 0;
  int max_recvs = 0;
  int reg_is_global = 0;
  int force_flush = 0;
  int net_device_type = 0;
  int net_device_version = 0;
  std::vector<int> members;  // of a device of several NICs, since v9
  uint64_t max_p2p_bytes = 0;
  uint64_t max_coll_bytes = 0;
  int max_multi_request_size = 0;
  int rail_id = -1;
  int plane_id = -1;

  bool operator==(const NetProperties&) const = default;
};

// Calls return NCCL's result, and may be made from any thread that NCCL makes them from.
class NetPlugin {
 public:
  // The interface asked for, 0 for the newest that both sides have. Null and *error if there is
  // none.
  static std::unique_ptr<NetPlugin> Open(const std::string& path, int interface,
                                         std::string* error);
  // Interface versions that the file exports, newest first; false and *error if it cannot be
  // opened.
  static bool Interfaces(const std::string& path, std::vector<int>* versions, std::string* error);

  virtual ~NetPlugin() = default;
  NetPlugin(const NetPlugin&) = delete;
  NetPlugin& operator=(const NetPlugin&) = delete;

  virtual int version() const = 0;
  virtual const char* name() const = 0;

  // Once for each communicator from v11 on; before, once while any communicator lives.
  virtual abi::Result Init(uint64_t communicator, int traffic_class, void** context) = 0;
  virtual abi::Result Finalize(void* context) = 0;
  virtual abi::Result Devices(int* count) = 0;
  // *fault says what is wrong with them; empty if nothing is.
  virtual abi::Result GetProperties(int device, NetProperties* properties, std::string* fault) = 0;
  // kInvalidUsage before v9, or where the plugin has no such function.
  virtual abi::Result MakeVirtualDevice(const std::vector<int>& members, int* device) = 0;

  virtual abi::Result Listen(void* context, int device, void* handle, void** listen_comm) = 0;
  // `device_handle`: false passes NULL for the place of the device handle, as NCCL does at times.
  virtual abi::Result Connect(void* context, int device, void* handle, bool device_handle,
                              void** send_comm) = 0;
  virtual abi::Result Accept(void* listen_comm, bool device_handle, void** recv_comm) = 0;
  virtual abi::Result RegMr(void* comm, void* data, size_t bytes, int type, void** mhandle) = 0;
  virtual abi::Result DeregMr(void* comm, void* mhandle) = 0;
  virtual abi::Result Isend(void* send_comm, void* data, size_t bytes, int tag, void* mhandle,
                            void* phandle, void** request) = 0;
  // A null `phandle` passes NULL for the array.
  virtual abi::Result Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle,
                            void* phandle, void** request) = 0;
  virtual abi::Result Test(void* request, int* done, int* sizes) = 0;
  virtual abi::Result CloseSend(void* send_comm) = 0;
  virtual abi::Result CloseRecv(void* recv_comm) = 0;
  virtual abi::Result CloseListen(void* listen_comm) = 0;

  // Calls of NCCL's profiler callback that plugins of v10 on made in this process.
  static uint64_t ProfilerCalls();

 protected:
  NetPlugin() = default;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_NET_PLUGIN_H_
