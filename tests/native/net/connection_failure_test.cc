// SPDX-License-Identifier: Apache-2.0
#include "net/connection_failure.h"
#include "common/log.h"
#include "common/text.h"
#include "log_line.h"
#include "net/clock.h"
#include "testing.h"

namespace nccltune::net {
namespace {

constexpr int kOutageS = 300;

class ConnectionFailureTest : public testing::Test {
 protected:
  using Texts = std::vector<std::string>;
  static Texts Lines() { return TakeLines(); }

  ConnectionFailure failure_{Log(KeepLine, abi::kSubsysNet, ""), "sending to x on y", kOutageS};
};

TEST_F(ConnectionFailureTest, WarnsAtOnceWhereSomebodyWaits) {
  EXPECT_FALSE(failure_.failed());
  failure_.Set(abi::kRemoteError, "reset", true, 7);
  EXPECT_TRUE(failure_.failed());
  EXPECT_EQ(Lines(), Texts({"WARN sending to x on y failed with 7 bytes outstanding: reset"}));
  EXPECT_EQ(failure_.Refuse(), abi::kRemoteError);
  EXPECT_TRUE(Lines().empty()) << "it was logged before";
}

TEST_F(ConnectionFailureTest, WarnsOnceOfAnUnnoticedEndWhenSomebodyGoesOn) {
  failure_.Set(abi::kSystemError, "bye", false, 0);
  EXPECT_EQ(Lines(), Texts({"INFO sending to x on y ended with 0 bytes outstanding: bye"}));
  EXPECT_EQ(failure_.Refuse(), abi::kSystemError);
  EXPECT_EQ(failure_.Refuse(), abi::kSystemError);
  EXPECT_EQ(Lines().size(), 1U);
}

TEST_F(ConnectionFailureTest, TheFirstFailureStays) {
  failure_.Set(abi::kRemoteError, "first", true, 1);
  failure_.Set(abi::kSystemError, "second", true, 1);
  EXPECT_EQ(failure_.result(), abi::kRemoteError);
  EXPECT_EQ(Lines().size(), 1U);
}

TEST_F(ConnectionFailureTest, TenSecondsWithoutAnyFlowAreTooLong) {
  constexpr int64_t kStart = 5 * kNsPerSecond;
  EXPECT_EQ(failure_.NoFlow(kStart), "");
  failure_.FlowsChanged(kStart, false, {"reset"});
  failure_.FlowsChanged(kStart + kNsPerSecond, false, {});
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond), "");
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond + 1), "no flow for 10 s: reset");
  failure_.FlowsChanged(kStart + 11 * kNsPerSecond, true, {});
  EXPECT_EQ(failure_.NoFlow(kStart + 60 * kNsPerSecond), "");
  EXPECT_EQ(failure_.why_down(), "reset");
}

TEST_F(ConnectionFailureTest, AnOutageMayLastAsLongAsTheSettingAllows) {
  constexpr int64_t kStart = 5 * kNsPerSecond;
  // The network went away under the first flow; a reset ended the last one.
  failure_.FlowsChanged(kStart, true, {"no answer", true});
  failure_.FlowsChanged(kStart, false, {"reset"});
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond), "");
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond + 1), "no flow for 300 s: reset");
  // What went down before a flow was up again does not count.
  failure_.FlowsChanged(kStart, true, {});
  failure_.FlowsChanged(kStart, false, {"reset"});
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond + 1), "no flow for 10 s: reset");
  // A failed attempt to reconnect shows an outage, too.
  failure_.FlowsChanged(kStart + kNsPerSecond, false, {"no answer", true});
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond), "");
}

TEST_F(ConnectionFailureTest, WithoutALimitAnOutageNeverEndsIt) {
  ConnectionFailure failure(Log(KeepLine, abi::kSubsysNet, ""), "", 0);
  failure.FlowsChanged(1, false, {"no answer", true});
  EXPECT_EQ(failure.NoFlow(1'000'000 * kNsPerSecond), "");
}

TEST(SocketEnd, IsAnOutageWhereTheNetworkMayComeBack) {
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EADDRNOTAVAIL}) {
    EXPECT_TRUE(EndBy(error).is_outage) << ErrorWords(error);
  }
  for (const int error : {ECONNRESET, ECONNREFUSED, EPIPE, EMFILE}) {
    EXPECT_FALSE(EndBy(error).is_outage) << ErrorWords(error);
  }
  EXPECT_FALSE(EndOf({}).is_outage);
}

}  // namespace
}  // namespace nccltune::net
