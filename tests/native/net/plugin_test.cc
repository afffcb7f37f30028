// SPDX-License-Identifier: Apache-2.0
// Tests every interface version through its own struct: communicators and their devices.
#include "net/plugin.h"
#include "net/support.h"
#include "testing.h"

namespace nccltune::net {
namespace {

TYPED_TEST_SUITE(VersionTest, AllVersions, VersionNames);
TYPED_TEST_SUITE(VirtualDeviceTest, SinceV9, VersionNames);

template <typename V>
class ContextTest : public VersionTest<V> {};
TYPED_TEST_SUITE(ContextTest, SinceV11, VersionNames);

// The v-device struct of a version.
template <typename V>
using Members = decltype(V::Properties::v_device);

TYPED_TEST(VersionTest, TheTableHasWhatNcclCallsWithoutLooking) {
  const auto& net = TypeParam::kNet;
  EXPECT_STREQ(net.name, "nccltune");
  EXPECT_NE(net.init, nullptr);
  EXPECT_NE(net.devices, nullptr);
  EXPECT_NE(net.get_properties, nullptr);
  EXPECT_NE(net.listen, nullptr);
  EXPECT_NE(net.connect, nullptr);
  EXPECT_NE(net.accept, nullptr);
  EXPECT_NE(net.reg_mr, nullptr);
  EXPECT_NE(net.dereg_mr, nullptr);
  EXPECT_NE(net.isend, nullptr);
  EXPECT_NE(net.irecv, nullptr);
  EXPECT_NE(net.iflush, nullptr);
  EXPECT_NE(net.test, nullptr);
  EXPECT_NE(net.close_send, nullptr);
  EXPECT_NE(net.close_recv, nullptr);
  EXPECT_NE(net.close_listen, nullptr);
  // These entries are for plugins that access GPU memory.
  EXPECT_EQ(net.reg_mr_dma_buf, nullptr);
  if constexpr (TypeParam::kNumber >= 7) {
    EXPECT_EQ(net.get_device_mr, nullptr);
    EXPECT_EQ(net.irecv_consumed, nullptr);
  }
  if constexpr (TypeParam::kNumber >= 9) {
    EXPECT_NE(net.make_v_device, nullptr);
  }
  if constexpr (TypeParam::kHasContext) {
    EXPECT_NE(net.finalize, nullptr);
    abi::NetAttr attributes = {};
    EXPECT_EQ(net.set_net_attr(this->context_, &attributes), abi::kSuccess);
  }
}

TYPED_TEST(VersionTest, InitLogsInOneLineWhatIsUsed) {
  void* another = nullptr;
  ASSERT_EQ(TypeParam::Init(&another, abi::kNetUndefined), abi::kSuccess);
  const std::vector<std::string> log = TakeLog();
  ASSERT_EQ(log.size(), 1U);
  const std::string& line = log.front();
  EXPECT_EQ(line.rfind("INFO NET/nccltune: nccltune " NCCLTUNE_TEST_VERSION ", interface v" +
                           std::to_string(TypeParam::kNumber) + "; 5 flows, ",
                       0),
            0U)
      << line;
  EXPECT_TRUE(Has(line, "; congestion control ")) << line;
  EXPECT_TRUE(Has(line, "; 2 NICs: eth0 10.0.0.1 25000 Mb/s, eth1 10.0.0.2 10000 Mb/s")) << line;
  EXPECT_LT(line.size(), 800U);
  EXPECT_EQ(TypeParam::Finalize(another), abi::kSuccess);
}

TYPED_TEST(VersionTest, InitNeedsNoLogger) {
  void* another = nullptr;
  ASSERT_EQ(TypeParam::Init(&another, abi::kNetUndefined, nullptr), abi::kSuccess);
  int count = 0;
  EXPECT_EQ(TypeParam::kNet.devices(&count), abi::kSuccess);
  EXPECT_EQ(TypeParam::kNet.get_properties(99, nullptr), abi::kInvalidArgument);
  EXPECT_EQ(TypeParam::Finalize(another), abi::kSuccess);
  EXPECT_TRUE(TakeLog().empty());
}

TYPED_TEST(VersionTest, AHostWithoutNicsHasNoDevices) {
  this->below().devices.clear();
  this->below().plain = 0;
  this->below().visible = 0;
  void* another = nullptr;
  ASSERT_EQ(TypeParam::Init(&another, abi::kNetUndefined), abi::kSuccess);
  this->ExpectOneWarning("no network interface with an address that NCCL_SOCKET_IFNAME allows");
  int count = -1;
  EXPECT_EQ(TypeParam::kNet.devices(&count), abi::kSuccess);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(TypeParam::Finalize(another), abi::kSuccess);
}

TYPED_TEST(VersionTest, DevicesAreCounted) {
  int count = 0;
  EXPECT_EQ(TypeParam::kNet.devices(&count), abi::kSuccess);
  EXPECT_EQ(count, 2);
  this->ExpectRefused(TypeParam::kNet.devices(nullptr),
                      "devices: the pointer to the number is null");
}

TYPED_TEST(VersionTest, EveryPropertyIsSet) {
  for (const int pattern : {0xAA, 0x55}) {
    typename TypeParam::Properties properties;
    std::memset(&properties, pattern, sizeof(properties));
    ASSERT_EQ(TypeParam::kNet.get_properties(0, &properties), abi::kSuccess);
    EXPECT_STREQ(properties.name, "eth0");
    EXPECT_STREQ(properties.pci_path, "/sys/devices/pci0000:00/0000:00:05.0");
    EXPECT_EQ(properties.guid, 0x1000U);
    EXPECT_EQ(properties.ptr_support, abi::kPointerHost);
    EXPECT_EQ(properties.speed, 25000);
    EXPECT_EQ(properties.port, 0);
    EXPECT_EQ(properties.latency, 0.0F);
    EXPECT_EQ(properties.max_comms, 65536);
    EXPECT_EQ(properties.max_recvs, 1);
    if constexpr (TypeParam::kNumber >= 7) {
      EXPECT_EQ(properties.net_device_type, abi::kNetDeviceHost);
      EXPECT_EQ(properties.net_device_version, 0);
    }
    if constexpr (TypeParam::kNumber >= 8) {
      EXPECT_EQ(properties.reg_is_global, 1);
    }
    if constexpr (TypeParam::kNumber >= 9) {
      EXPECT_EQ(properties.force_flush, 0);
      EXPECT_EQ(properties.v_device.count, 1);
      EXPECT_EQ(properties.v_device.devices[0], 0);
      EXPECT_EQ(properties.max_p2p_bytes, size_t{1} << 40U);
      EXPECT_EQ(properties.max_coll_bytes, size_t{1} << 40U);
    }
    if constexpr (TypeParam::kNumber >= 11) {
      EXPECT_EQ(properties.max_multi_request_size, 1);
    }
    if constexpr (TypeParam::kNumber >= 12) {
      EXPECT_EQ(properties.rail_id, -1);
      EXPECT_EQ(properties.plane_id, -1);
    }
  }
}

TYPED_TEST(VersionTest, PropertiesOfAVirtualNicAndTheirNamesStay) {
  typename TypeParam::Properties first;
  typename TypeParam::Properties again;
  ASSERT_EQ(TypeParam::kNet.get_properties(1, &first), abi::kSuccess);
  ASSERT_EQ(TypeParam::kNet.get_properties(1, &again), abi::kSuccess);
  EXPECT_EQ(first.pci_path, nullptr);
  EXPECT_EQ(first.guid, 0x1001U);
  EXPECT_EQ(first.name, again.name) << "NCCL keeps the pointer";
}

TYPED_TEST(VersionTest, NothingBehindTheHandleIsWritten) {
  std::array<std::byte, 2 * abi::kNetHandleBytes> memory;
  for (const bool listens : {true, false}) {
    memory.fill(std::byte{0xee});
    void* comm = nullptr;
    const abi::Result result =
        listens ? TypeParam::Listen(this->context_, 0, memory.data(), &comm)
                : TypeParam::Connect(this->context_, 0, nullptr, memory.data(), &comm);
    ASSERT_EQ(result, abi::kSuccess);
    for (size_t i = 0; i < memory.size(); ++i) {
      ASSERT_EQ(memory.at(i), i < abi::kNetHandleBytes ? std::byte{0x11} : std::byte{0xee}) << i;
    }
  }
}

TYPED_TEST(VersionTest, NoSuchDevice) {
  for (const int device : {-1, 2, 1 << 30}) {
    typename TypeParam::Properties properties;
    EXPECT_EQ(TypeParam::kNet.get_properties(device, &properties), abi::kInvalidArgument);
    const std::string words = "there is no device " + std::to_string(device);
    this->ExpectOneWarning("getProperties: " + words);
    void* comm = &comm;
    this->ExpectRefused(TypeParam::Listen(this->context_, device, this->handle_.data(), &comm),
                        "listen: " + words);
    EXPECT_EQ(comm, nullptr);
    comm = &comm;
    this->ExpectRefused(
        TypeParam::Connect(this->context_, device, nullptr, this->handle_.data(), &comm),
        "connect: " + words);
    EXPECT_EQ(comm, nullptr);
  }
}

TYPED_TEST(VersionTest, PropertiesWithoutAPlace) {
  this->ExpectRefused(TypeParam::kNet.get_properties(0, nullptr),
                      "getProperties: the pointer to the properties is null");
}

TYPED_TEST(VersionTest, ExceptionsStopHere) {
  const std::vector<std::pair<StandIn::Throws, std::string>> cases = {
      {StandIn::Throws::kBadAlloc, "out of memory"},
      {StandIn::Throws::kRuntimeError, "the interfaces cannot be listed"},
      {StandIn::Throws::kNumber, "unknown exception"}};
  for (const auto& [thrown, words] : cases) {
    this->below().devices_throw = thrown;
    const abi::Result expected =
        thrown == StandIn::Throws::kBadAlloc ? abi::kSystemError : abi::kInternalError;
    void* context = nullptr;
    EXPECT_EQ(TypeParam::Init(&context, 0), expected);
    EXPECT_EQ(context, nullptr);
    this->ExpectOneWarning("init: " + words);
    int count = -1;
    EXPECT_EQ(TypeParam::kNet.devices(&count), expected);
    EXPECT_EQ(count, 0);
    this->ExpectOneWarning("devices: " + words);
    typename TypeParam::Properties properties;
    EXPECT_EQ(TypeParam::kNet.get_properties(0, &properties), expected);
    this->ExpectOneWarning("getProperties: " + words);
    void* comm = &comm;
    EXPECT_EQ(TypeParam::Listen(this->context_, 0, this->handle_.data(), &comm), expected);
    EXPECT_EQ(comm, nullptr);
    this->ExpectOneWarning("listen: " + words);
    comm = &comm;
    EXPECT_EQ(TypeParam::Connect(this->context_, 0, nullptr, this->handle_.data(), &comm),
              expected);
    EXPECT_EQ(comm, nullptr);
    this->ExpectOneWarning("connect: " + words);
    if constexpr (TypeParam::kNumber >= 9) {
      Members<TypeParam> members = {};
      members.count = 1;
      int device = 0;
      EXPECT_EQ(TypeParam::kNet.make_v_device(&device, &members), expected);
      this->ExpectOneWarning("makeVDevice: " + words);
    }
  }
}

TYPED_TEST(VirtualDeviceTest, IsMadeOfItsMembers) {
  typename TypeParam::Properties properties;
  Members<TypeParam> members = {};
  members.count = 2;
  members.devices[0] = 1;
  members.devices[1] = 0;
  int device = -1;
  ASSERT_EQ(TypeParam::kNet.make_v_device(&device, &members), abi::kSuccess);
  EXPECT_EQ(device, 2);
  EXPECT_EQ(this->below().members, (std::vector<int>{1, 0}));
  int count = 0;
  EXPECT_EQ(TypeParam::kNet.devices(&count), abi::kSuccess);
  EXPECT_EQ(count, 3);
  std::memset(&properties, 0xAA, sizeof(properties));
  ASSERT_EQ(TypeParam::kNet.get_properties(2, &properties), abi::kSuccess);
  EXPECT_STREQ(properties.name, "eth0+eth1");
  EXPECT_EQ(properties.speed, 35000);
  EXPECT_EQ(properties.v_device.count, 2);
  EXPECT_EQ(properties.v_device.devices[0], 1);
  EXPECT_EQ(properties.v_device.devices[1], 0);
}

TYPED_TEST(VirtualDeviceTest, NoMoreMembersThanTheVersionHas) {
  typename TypeParam::Properties properties;
  Members<TypeParam> members = {};
  const int most = static_cast<int>(std::size(members.devices));
  EXPECT_EQ(most, TypeParam::kNumber == 12 ? 8 : 4);
  for (const int count : {-1, 0, most + 1}) {
    members.count = count;
    int device = 77;
    this->ExpectRefused(TypeParam::kNet.make_v_device(&device, &members),
                        "makeVDevice: " + std::to_string(count) + " members, expected 1 to " +
                            std::to_string(most));
    EXPECT_EQ(device, 77);
  }
  // A device with eight members, which only v12 can create.
  this->below().devices[1].members = {0, 1, 2, 3, 4, 5, 6, 7};
  ASSERT_EQ(TypeParam::kNet.get_properties(1, &properties), abi::kSuccess);
  EXPECT_EQ(properties.v_device.count, most);
  for (int i = 0; i < most; ++i) EXPECT_EQ(properties.v_device.devices[i], i);
}

TYPED_TEST(VirtualDeviceTest, WhatCannotBeMadeIsNoMisuse) {
  this->below().no_virtual_device = "eth0 has an IPv4 address and eth1 an IPv6 one";
  Members<TypeParam> members = {};
  members.count = 2;
  members.devices[1] = 1;
  int device = 77;
  // kInvalidUsage would end the communicator in NCCL 2.24 and 2.25.
  EXPECT_EQ(TypeParam::kNet.make_v_device(&device, &members), abi::kInternalError);
  EXPECT_EQ(device, 77);
  EXPECT_EQ(TakeLog(),
            std::vector<std::string>{"INFO NET/nccltune: makeVDevice: eth0 has an IPv4 address "
                                     "and eth1 an IPv6 one"});
  this->ExpectRefused(TypeParam::kNet.make_v_device(nullptr, &members),
                      "makeVDevice: the pointer to the device is null");
  this->ExpectRefused(TypeParam::kNet.make_v_device(&device, nullptr),
                      "makeVDevice: the list of members is null");
}

TYPED_TEST(ContextTest, VirtualDevicesAreForgottenWithTheLastCommunicator) {
  void* second = nullptr;
  ASSERT_EQ(TypeParam::Init(&second, 0), abi::kSuccess);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, this->context_);
  EXPECT_EQ(TypeParam::Finalize(this->context_), abi::kSuccess);
  EXPECT_EQ(this->below().forgotten, 0);
  EXPECT_EQ(TypeParam::Finalize(second), abi::kSuccess);
  EXPECT_EQ(this->below().forgotten, 1);
  EXPECT_EQ(TypeParam::Finalize(nullptr), abi::kSuccess);
  EXPECT_EQ(this->below().forgotten, 1);
  ASSERT_EQ(TypeParam::Init(&this->context_, 0), abi::kSuccess);
}

TYPED_TEST(ContextTest, FinalizeReleasesWhatBelongsToTheCommunicator) {
  void* another = nullptr;
  ASSERT_EQ(TypeParam::Init(&another, 0), abi::kSuccess);
  void* comm = nullptr;
  EXPECT_EQ(TypeParam::Listen(another, 0, this->handle_.data(), &comm), abi::kSuccess);
  const uint64_t owner = this->below().context->owner;
  EXPECT_NE(owner, ConnectionContext::kProcess);
  EXPECT_EQ(TypeParam::Listen(this->context_, 0, this->handle_.data(), &comm), abi::kSuccess);
  EXPECT_NE(this->below().context->owner, owner);
  EXPECT_TRUE(this->below().released.empty());
  EXPECT_EQ(TypeParam::Finalize(another), abi::kSuccess);
  EXPECT_EQ(this->below().released, std::vector<uint64_t>{owner});
}

TYPED_TEST(ContextTest, InitOfV6DoesNotDisturbLivingCommunicators) {
  void* none = nullptr;
  ASSERT_EQ(V6::Init(&none, 0), abi::kSuccess);
  EXPECT_EQ(this->below().forgotten, 0);
}

TYPED_TEST(ContextTest, NeedsAPlaceForTheContext) {
  abi::NetCommConfig config = {0};
  this->ExpectRefused(TypeParam::kNet.init(nullptr, 1, &config, KeepLine, nullptr),
                      "init: the pointer to the context is null");
}

TYPED_TEST(ContextTest, WithoutAConfigurationThereIsNoTrafficClass) {
  void* context = nullptr;
  ASSERT_EQ(TypeParam::kNet.init(&context, 1, nullptr, KeepLine, nullptr), abi::kSuccess);
  void* comm = nullptr;
  EXPECT_EQ(TypeParam::Listen(context, 0, this->handle_.data(), &comm), abi::kSuccess);
  EXPECT_EQ(this->below().context->traffic_class, -1);
  EXPECT_EQ(TypeParam::Finalize(context), abi::kSuccess);
}

TEST(Settings, AreJudgedOnceAProcess) {
  // In a process of its own: this process has logged the problems already.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto judged = [] {
    ResetStandIn();
    TheStandIn().setting_problems = {"NCCLTUNE_NET_FLOWS='many' is not a number; using 0"};
    std::vector<std::string> warnings;
    for (int round = 0; round < 3; ++round) {
      void* context = nullptr;
      // The first init has no logger.
      V12::Init(&context, 0, round == 0 ? nullptr : KeepLine);
      for (const std::string& line : TakeLog()) {
        if (line.starts_with("WARN")) warnings.push_back(line);
      }
      V12::Finalize(context);
    }
    return warnings == std::vector<std::string>{
                           "WARN NET/nccltune: NCCLTUNE_NET_FLOWS='many' is not a number; using 0"};
  };
  EXPECT_EXIT(std::exit(judged() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(UntilV10, EveryInitCountsDevicesAnew) {
  // NCCL calls it once after loading the plugin. Because of -z nodelete, the plugin still has its
  // old state.
  ResetStandIn();
  void* none = nullptr;
  ASSERT_EQ(V9::Init(&none, 0), abi::kSuccess);
  EXPECT_EQ(TheStandIn().forgotten, 1);
  ASSERT_EQ(V9::Init(&none, 0), abi::kSuccess);
  EXPECT_EQ(TheStandIn().forgotten, 2);
}

TEST(UntilV10, NothingIsMadeBeforeInit) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto refused = [] {
    ResetStandIn();
    std::array<std::byte, abi::kNetHandleBytes> handle = {};
    void* comm = nullptr;
    return V8::Listen(nullptr, 0, handle.data(), &comm) == abi::kInvalidUsage &&
           V8::Connect(nullptr, 0, nullptr, handle.data(), &comm) == abi::kInvalidUsage &&
           V10::Connect(nullptr, 0, nullptr, handle.data(), &comm) == abi::kInvalidUsage &&
           TheStandIn().calls == 0;
  };
  EXPECT_EXIT(std::exit(refused() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nccltune::net
