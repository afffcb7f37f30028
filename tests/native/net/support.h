// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_NET_SUPPORT_H_
#define NCCLTUNE_TESTS_NET_SUPPORT_H_

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "net/interface.h"
#include "net/plugin.h"
#include "net/transport_stand_in.h"

namespace nccltune::net {

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

#endif  // NCCLTUNE_TESTS_NET_SUPPORT_H_
