// SPDX-License-Identifier: Apache-2.0
//
// What the adapters of all interface versions call. Every argument is checked here, nothing is
// thrown from here, and what goes wrong is said here once, or was by the transport. Where all
// versions agree on a function, it has the type that NCCL gives it.
#ifndef NCCLTUNE_NET_PLUGIN_H_
#define NCCLTUNE_NET_PLUGIN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "abi/net_types.h"

namespace nccltune::net::plugin {

inline constexpr const char* kName = "nccltune";

// Until v10 there is one context, the process's, and nothing ends it.
abi::Result Init(int interface_version, abi::LogFunction log) noexcept;

// Since v11, for each communicator. `config` may be null. Init and Finalize come in pairs.
abi::Result Init(int interface_version, void** context, const abi::NetCommConfig* config,
                 abi::LogFunction log) noexcept;
abi::Result Finalize(void* context) noexcept;

abi::Result Devices(int* count) noexcept;

// A device, as the newest version tells of it.
struct Properties {
  static constexpr int kMostMembers = 8;

  const char* name;
  const char* pci_path;
  uint64_t guid;
  int speed_mbps;
  int members;
  std::array<int, kMostMembers> member;

  // The same for all devices.
  static constexpr int kPointerSupport = abi::kPointerHost;
  static constexpr int kRegIsGlobal = 1;
  static constexpr int kForceFlush = 0;
  static constexpr int kPort = 0;
  static constexpr float kLatency = 0.0F;  // not known, as with NCCL's own TCP network
  static constexpr int kMaxComms = 65536;
  static constexpr int kMaxReceives = 1;
  static constexpr size_t kMaxBytes = abi::kNetLargestMessage;
  static constexpr int kMaxMultiRequestSize = 1;
};

// `place` is where NCCL wants them to be.
abi::Result GetProperties(int device, const void* place, Properties* properties) noexcept;

// The members as v9 to v11 have them (four at most) and as v12 has them.
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

// One device of several. `most` is the room in `members`, `count` what NCCL says is in there.
abi::Result MakeVDevice(int* device, const int* members, int count, int most) noexcept;

template <typename VDevice>
abi::Result MakeVDevice(int* device, VDevice* members) noexcept {
  if (members == nullptr) return MakeVDevice(device, nullptr, 0, 0);
  return MakeVDevice(device, members->devices, members->count,
                     static_cast<int>(std::size(members->devices)));
}

// Of the process, and of a communicator.
abi::Result Listen(int device, void* handle, void** listen_comm) noexcept;
abi::Result Listen(void* context, int device, void* handle, void** listen_comm) noexcept;

// `config` may be null. The device handles of connect and accept are for networks that code on the
// GPU takes part in: they stay as NCCL passes them.
abi::Result Connect(int device, const abi::NetCommConfig* config, void* handle,
                    void** send_comm) noexcept;
abi::Result Connect(void* context, int device, void* handle, void** send_comm) noexcept;
abi::Result Accept(void* listen_comm, void** recv_comm) noexcept;

// TCP needs no registered memory: *mhandle is null, and null is what comes back.
abi::Result RegMr(void* comm, int type, void** mhandle) noexcept;
abi::Result DeregMr(void* comm, void* mhandle) noexcept;

// A negative size of the versions until v8 arrives here as one far too large. `parent` is for
// profilers and may be null.
abi::Result Isend(void* send_comm, const void* data, size_t bytes, void** request,
                  void* parent = nullptr) noexcept;

// What stands in *request is overwritten: every receive is completed, whether or not NCCL needs
// that.
abi::Result Irecv(void* recv_comm, int count, void** data, const int* sizes,
                  void** request) noexcept;
abi::Result Irecv(void* recv_comm, int count, void** data, const size_t* sizes, void** request,
                  void* parent = nullptr) noexcept;

// Of memory on the GPU, which we never receive into: an error.
abi::Result Iflush(void* recv_comm, int count, void** data, int* sizes, void** mhandles,
                   void** request) noexcept;

abi::Result Test(void* request, int* done, int* sizes) noexcept;

abi::Result CloseSend(void* send_comm) noexcept;
abi::Result CloseRecv(void* recv_comm) noexcept;
abi::Result CloseListen(void* listen_comm) noexcept;

}  // namespace nccltune::net::plugin

#endif  // NCCLTUNE_NET_PLUGIN_H_
