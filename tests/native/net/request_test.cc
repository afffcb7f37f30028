// SPDX-License-Identifier: Apache-2.0
#include "net/request.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "net/clock.h"

namespace nccltune::net {
namespace {

TEST(RequestDepth, IsThereWithSixRequestsAndGoneAMillisecondLater) {
  RequestDepth depth;
  EXPECT_FALSE(depth.IsDeep(NowNs()));
  depth.RecordHeld(5);
  EXPECT_FALSE(depth.IsDeep(NowNs()));
  const int64_t before = NowNs();
  depth.RecordHeld(6);
  const int64_t after = NowNs();
  EXPECT_TRUE(depth.IsDeep(before));
  EXPECT_FALSE(depth.IsDeep(after + 2 * kNsPerMs));
}

TEST(RequestDepth, IsNotTakenAwayByFewerRequests) {
  RequestDepth depth;
  const int64_t before = NowNs();
  depth.RecordHeld(6);
  depth.RecordHeld(1);
  EXPECT_TRUE(depth.IsDeep(before));
}

}  // namespace
}  // namespace nccltune::net
