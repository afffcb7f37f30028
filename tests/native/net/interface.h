// SPDX-License-Identifier: Apache-2.0
//
// A uniform interface to the exported struct of every interface version.
#ifndef NCCLTUNE_TESTS_NET_INTERFACE_H_
#define NCCLTUNE_TESTS_NET_INTERFACE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "abi/net_v10.h"
#include "abi/net_v11.h"
#include "abi/net_v12.h"
#include "abi/net_v6.h"
#include "abi/net_v7.h"
#include "abi/net_v8.h"
#include "abi/net_v9.h"
#include "log_line.h"

extern "C" {
extern const nccltune::abi::NetV6 ncclNetPlugin_v6;
extern const nccltune::abi::NetV7 ncclNetPlugin_v7;
extern const nccltune::abi::NetV8 ncclNetPlugin_v8;
extern const nccltune::abi::NetV9 ncclNetPlugin_v9;
extern const nccltune::abi::NetV10 ncclNetPlugin_v10;
extern const nccltune::abi::NetV11 ncclNetPlugin_v11;
extern const nccltune::abi::NetV12 ncclNetPlugin_v12;
}

namespace nccltune::net {

template <int number, typename NetStruct, typename PropertiesStruct, typename Size,
          const NetStruct* exported>
struct Interface {
  using Net = NetStruct;
  using Properties = PropertiesStruct;
  using SizeInMessages = Size;
  static constexpr int kNumber = number;
  static constexpr bool kHasContext = number >= 11;
  static constexpr const Net& kNet = *exported;

  // `traffic_class` is an argument of init since v11, and of connect in v10.
  static abi::Result Init(void** context, int traffic_class, abi::LogFunction log = KeepLine) {
    *context = nullptr;
    if constexpr (kHasContext) {
      abi::NetCommConfig config = {traffic_class};
      return kNet.init(context, 0x1234, &config, log, nullptr);
    } else if constexpr (kNumber == 10) {
      return kNet.init(log, nullptr);
    } else {
      return kNet.init(log);
    }
  }

  static abi::Result Finalize([[maybe_unused]] void* context) {
    if constexpr (kHasContext) return kNet.finalize(context);
    return abi::kSuccess;
  }

  static abi::Result Listen([[maybe_unused]] void* context, int device, void* handle,
                            void** listen_comm) {
    if constexpr (kHasContext) {
      return kNet.listen(context, device, handle, listen_comm);
    } else {
      return kNet.listen(device, handle, listen_comm);
    }
  }

  static abi::Result Connect([[maybe_unused]] void* context, int device,
                             [[maybe_unused]] abi::NetCommConfig* config, void* handle,
                             void** send_comm,
                             [[maybe_unused]] abi::NetDeviceHandle** send_device = nullptr) {
    if constexpr (kHasContext) {
      return kNet.connect(context, device, handle, send_comm, send_device);
    } else if constexpr (kNumber == 10) {
      return kNet.connect(device, config, handle, send_comm, send_device);
    } else if constexpr (kNumber >= 7) {
      return kNet.connect(device, handle, send_comm, send_device);
    } else {
      return kNet.connect(device, handle, send_comm);
    }
  }

  static abi::Result Accept(void* listen_comm, void** recv_comm,
                            [[maybe_unused]] abi::NetDeviceHandle** recv_device = nullptr) {
    if constexpr (kNumber >= 7) {
      return kNet.accept(listen_comm, recv_comm, recv_device);
    } else {
      return kNet.accept(listen_comm, recv_comm);
    }
  }

  static abi::Result Isend(void* send_comm, void* data, Size bytes, void** request) {
    if constexpr (kNumber >= 10) {
      return kNet.isend(send_comm, data, bytes, /*tag=*/9, nullptr, nullptr, request);
    } else {
      return kNet.isend(send_comm, data, bytes, /*tag=*/9, nullptr, request);
    }
  }

  static abi::Result Irecv(void* recv_comm, int count, void** data, Size* sizes, int* tags,
                           void** request) {
    if constexpr (kNumber >= 10) {
      return kNet.irecv(recv_comm, count, data, sizes, tags, nullptr, nullptr, request);
    } else {
      return kNet.irecv(recv_comm, count, data, sizes, tags, nullptr, request);
    }
  }
};

using V6 = Interface<6, abi::NetV6, abi::NetPropertiesV6, int, &ncclNetPlugin_v6>;
using V7 = Interface<7, abi::NetV7, abi::NetPropertiesV7, int, &ncclNetPlugin_v7>;
using V8 = Interface<8, abi::NetV8, abi::NetPropertiesV8, int, &ncclNetPlugin_v8>;
using V9 = Interface<9, abi::NetV9, abi::NetPropertiesV9, size_t, &ncclNetPlugin_v9>;
using V10 = Interface<10, abi::NetV10, abi::NetPropertiesV10, size_t, &ncclNetPlugin_v10>;
using V11 = Interface<11, abi::NetV11, abi::NetPropertiesV11, size_t, &ncclNetPlugin_v11>;
using V12 = Interface<12, abi::NetV12, abi::NetPropertiesV12, size_t, &ncclNetPlugin_v12>;

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_INTERFACE_H_
