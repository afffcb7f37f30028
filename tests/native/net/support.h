// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "abi/nccl_types.h"
#include "abi/net.h"
#include "log_line.h"
#include "net/device_table.h"
#include "net/plugin.h"
#include "net/transport.h"
#include "testing.h"

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

// Replaces everything below the plugin functions: transport, devices and settings. It returns
// configured answers and records the calls.

class Listener {};
class Sender {};
class Receiver {};

struct StandIn {
  enum class Throws { kNothing, kBadAlloc, kRuntimeError, kNumber };

  // Configured answers:
  abi::Result result = abi::kSuccess;
  bool ready = true;  // whether calls return connections, requests and completions at once
  size_t transferred = 0;
  std::deque<Device> devices;
  int plain = 0;    // number of plain devices
  int visible = 0;  // number of devices visible to NCCL
  Throws devices_throw = Throws::kNothing;
  std::string no_virtual_device;  // error of making a virtual device
  std::vector<std::string> setting_problems;

  // Objects that are returned:
  Listener listener;
  Sender sender;
  Receiver receiver;
  TransferRequest request;

  // Recorded arguments:
  std::optional<ConnectionContext> context;
  const Device* device = nullptr;
  std::byte* handle = nullptr;
  const void* asked_of = nullptr;
  const void* data = nullptr;
  size_t bytes = 0;
  std::vector<int> members;
  int calls = 0;  // calls of the transport
  int forgotten = 0;
  std::vector<const void*> closed;
  std::vector<uint64_t> released;  // released owners
};

// Returns the instance of the program.
StandIn& TheStandIn();

// Two devices: eth0 on a PCI bus and eth1 on none.
void ResetStandIn();

// A uniform interface to the exported struct of every interface version.

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

// The lines logged since the last call, as "WARN text" and "INFO text".
inline std::vector<std::string> TakeLog() {
  {
    const std::scoped_lock lock(KeptLog::Get().mutex);
    for (const LogLine& line : KeptLog::Get().lines) EXPECT_EQ(line.flags, kLogSubsystems);
  }
  return TakeLines();
}

// A communicator of interface version V, with an empty log and a fresh transport stand-in.
template <typename V>
class VersionTest : public ::testing::Test {
 protected:
  static constexpr int kTrafficClass = 104;

  void SetUp() override {
    ResetStandIn();
    ASSERT_EQ(V::Init(&context_, kTrafficClass), abi::kSuccess);
    TakeLog();
    TheStandIn().forgotten = 0;
  }

  void TearDown() override {
    TheStandIn().devices_throw = StandIn::Throws::kNothing;
    EXPECT_EQ(V::Finalize(context_), abi::kSuccess);
  }

  // Expects that the last call logged one warning and never reached the transport.
  static void ExpectOneWarning(const std::string& text) {
    EXPECT_EQ(TakeLog(), std::vector<std::string>{"WARN NET/nccltune: " + text});
    EXPECT_EQ(TheStandIn().calls, 0);
  }

  // The same of a call that is refused as an invalid argument.
  static void ExpectRefused(abi::Result result, const std::string& text) {
    EXPECT_EQ(result, abi::kInvalidArgument) << text;
    ExpectOneWarning(text);
  }

  StandIn& below() { return TheStandIn(); }

  void* context_ = nullptr;
  std::array<std::byte, abi::kNetHandleBytes> handle_ = {};
};

template <typename V>
class ConnectionTest : public VersionTest<V> {
 protected:
  void* sender() { return &TheStandIn().sender; }
  void* receiver() { return &TheStandIn().receiver; }

  // Calls irecv with one buffer.
  abi::Result Irecv(void* data, typename V::SizeInMessages bytes, void** request) {
    int tag = 3;
    return V::Irecv(receiver(), 1, &data, &bytes, &tag, request);
  }
};

template <typename V>
class VirtualDeviceTest : public VersionTest<V> {};

struct VersionNames {
  template <typename V>
  static std::string GetName(int /*index*/) {
    return "v" + std::to_string(V::kNumber);
  }
};

using AllVersions = ::testing::Types<V6, V7, V8, V9, V10, V11, V12>;
using SinceV9 = ::testing::Types<V9, V10, V11, V12>;
using SinceV11 = ::testing::Types<V11, V12>;

}  // namespace nccltune::net
