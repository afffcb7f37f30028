// SPDX-License-Identifier: Apache-2.0
// The functions that the adapters of all interface versions call. They check every argument and
// never throw. They log each error once, unless the transport has logged it. A function that is the
// same in all versions has NCCL's signature.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <new>
#include <span>
#include <string_view>

#include "abi/nccl_types.h"
#include "abi/net.h"
#include "common/log.h"

namespace nccltune::net {

// Functions that make a call from NCCL fail: they log one line and return an error.

inline constexpr std::string_view kLogPrefix = "NET/nccltune: ";
inline constexpr unsigned long kLogSubsystems = abi::kSubsysInit | abi::kSubsysNet;

// Makes `function` the logger of the whole process, because most calls name no communicator.
// Returns a log that uses this logger.
Log TakeLog(abi::LogFunction function) noexcept;
Log NewestLog() noexcept;

// Logs a warning and returns `result`. Allocates no memory, because it must also work when memory
// has run out.
__attribute__((format(printf, 2, 3))) abi::Result Refuse(abi::Result result, const char* format,
                                                         ...) noexcept;

// Logs that a pointer from NCCL, described by `what`, is null. Returns kInvalidArgument.
abi::Result RefuseNull(const char* call, const char* what) noexcept;

// Returns the result of `work`. If `work` throws, logs a warning and returns an error.
template <typename Work>
abi::Result Guarded(const char* call, const Work& work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Refuse(abi::kSystemError, "%s: out of memory", call);
  } catch (const std::exception& error) {
    return Refuse(abi::kInternalError, "%s: %s", call, error.what());
  } catch (...) {
    return Refuse(abi::kInternalError, "%s: unknown exception", call);
  }
}

}  // namespace nccltune::net

namespace nccltune::net::plugin {

inline constexpr const char* kName = "nccltune";

// Init for interfaces up to v10: makes one context for the whole process, which is never destroyed.
abi::Result Init(int interface_version, abi::LogFunction log) noexcept;

// Init for v11 and later: makes one context per communicator, which Finalize destroys. `config` may
// be null.
abi::Result Init(int interface_version, void** context, const abi::NetCommConfig* config,
                 abi::LogFunction log) noexcept;
abi::Result Finalize(void* context) noexcept;

abi::Result Devices(int* count) noexcept;

// The properties of a device in the newest interface version.
struct Properties {
  static constexpr int kMostMembers = 8;

  const char* name;
  const char* pci_path;
  uint64_t guid;
  int speed_mbps;
  int members;
  std::array<int, kMostMembers> member;

  // The values below are the same for all devices.
  static constexpr int kPointerSupport = abi::kPointerHost;
  static constexpr int kRegIsGlobal = 1;
  static constexpr int kForceFlush = 0;
  static constexpr int kPort = 0;
  static constexpr float kLatency = 0.0F;  // unknown, as in NCCL's own socket transport
  static constexpr int kMaxComms = 65536;
  static constexpr int kMaxReceives = 1;
  static constexpr size_t kMaxBytes = abi::kNetLargestMessage;
  static constexpr int kMaxMultiRequestSize = 1;
};

// Fills `properties`. `place` is NCCL's output pointer. Returns an error if `place` is null or the
// device is unknown.
abi::Result GetProperties(int device, const void* place, Properties* properties) noexcept;

// Returns the members of a device in NCCL's struct `VDevice`, which has room for four members (v9
// to v11) or eight (v12). Further members are left out.
template <typename VDevice>
VDevice MembersOf(const Properties& properties) noexcept {
  VDevice members = {};
  for (const int member :
       std::span(properties.member).first(static_cast<size_t>(properties.members))) {
    if (members.count == static_cast<int>(std::size(members.devices))) break;
    members.devices[members.count++] = member;
  }
  return members;
}

// Merges several devices into one. `count` is the number of members that NCCL passed, and `most` is
// the capacity of NCCL's array.
abi::Result MakeVDevice(int* device, const int* members, int count, int most) noexcept;

template <typename VDevice>
abi::Result MakeVDevice(int* device, VDevice* members) noexcept {
  if (members == nullptr) return MakeVDevice(device, nullptr, 0, 0);
  return MakeVDevice(device, members->devices, members->count,
                     static_cast<int>(std::size(members->devices)));
}

// The first overload uses the context of the process (up to v10), the second one the context of a
// communicator (v11 and later).
abi::Result Listen(int device, void* handle, void** listen_comm) noexcept;
abi::Result Listen(void* context, int device, void* handle, void** listen_comm) noexcept;

// `config` may be null. NCCL also passes pointers for device handles, which are for networks with
// GPU code. The plugin leaves those pointers unchanged.
abi::Result Connect(int device, const abi::NetCommConfig* config, void* handle,
                    void** send_comm) noexcept;
abi::Result Connect(void* context, int device, void* handle, void** send_comm) noexcept;
abi::Result Accept(void* listen_comm, void** recv_comm) noexcept;

// Returns an error for memory other than host memory. TCP needs no registered memory: *mhandle is
// always null.
abi::Result RegMr(void* comm, int type, void** mhandle) noexcept;
abi::Result DeregMr(void* comm, void* mhandle) noexcept;

// A negative size (versions up to v8) arrives here as a size above the limit and is refused.
abi::Result Isend(void* send_comm, const void* data, size_t bytes, void** request) noexcept;

// NCCL may pass a mark in *request that makes the completion optional. The mark is ignored and
// overwritten: every receive is completed.
abi::Result Irecv(void* recv_comm, int count, void** data, const int* sizes,
                  void** request) noexcept;
abi::Result Irecv(void* recv_comm, int count, void** data, const size_t* sizes,
                  void** request) noexcept;

// Returns an error: the plugin never receives into GPU memory, so there is nothing to flush.
abi::Result Iflush(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request) noexcept;

abi::Result Test(void* request, int* done, int* sizes) noexcept;

abi::Result CloseSend(void* send_comm) noexcept;
abi::Result CloseRecv(void* recv_comm) noexcept;
abi::Result CloseListen(void* listen_comm) noexcept;

}  // namespace nccltune::net::plugin
