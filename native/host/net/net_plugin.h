// SPDX-License-Identifier: Apache-2.0
// A net plugin of any interface version, called with the arguments that NCCL's own wrappers pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/nccl_types.h"

namespace nccltune::host::net {

inline constexpr int kMaxRecvs = 8;  // NCCL_PROXY_MAX_SUBS: number of sizes passed to test

// Returns "remote error" for 6; "result 9" for a number that NCCL does not have.
std::string ResultName(int result);

// The functions return NCCL's result code. They may be called from every thread from which NCCL
// calls them.
class NetPlugin {
 public:
  // Opens the plugin with that interface version; 0 means the newest version that both the plugin
  // and this program have. Returns null with *error if there is none.
  static std::unique_ptr<NetPlugin> Open(const std::string& path, int interface,
                                         std::string* error);

  virtual ~NetPlugin() = default;
  NetPlugin(const NetPlugin&) = delete;
  NetPlugin& operator=(const NetPlugin&) = delete;

  virtual int version() const = 0;
  virtual const char* name() const = 0;

  virtual abi::Result Init(uint64_t communicator, int traffic_class, void** context) = 0;
  virtual abi::Result Finalize(void* context) = 0;
  virtual abi::Result Devices(int* count) = 0;
  // The name is one of the properties of a device.
  virtual abi::Result GetName(int device, std::string* name) = 0;
  // Returns kInvalidUsage before v9, or if the plugin has no such function.
  virtual abi::Result MakeVirtualDevice(const std::vector<int>& members, int* device) = 0;

  virtual abi::Result Listen(void* context, int device, void* handle, void** listen_comm) = 0;
  virtual abi::Result Connect(void* context, int device, void* handle, void** send_comm) = 0;
  virtual abi::Result Accept(void* listen_comm, void** recv_comm) = 0;
  virtual abi::Result RegMr(void* comm, void* data, size_t bytes, int type, void** mhandle) = 0;
  virtual abi::Result DeregMr(void* comm, void* mhandle) = 0;
  virtual abi::Result Isend(void* send_comm, void* data, size_t bytes, int tag, void* mhandle,
                            void** request) = 0;
  virtual abi::Result Irecv(void* recv_comm, void* data, size_t bytes, int tag, void* mhandle,
                            void** request) = 0;
  virtual abi::Result Test(void* request, int* done, int* sizes) = 0;
  virtual abi::Result CloseSend(void* send_comm) = 0;
  virtual abi::Result CloseRecv(void* recv_comm) = 0;
  virtual abi::Result CloseListen(void* listen_comm) = 0;

  // Returns the function of the plugin that runs in this process; null if none. Async-signal-safe.
  static const char* CallInProgress();

 protected:
  NetPlugin() = default;
};

}  // namespace nccltune::host::net
