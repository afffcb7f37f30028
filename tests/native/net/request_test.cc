// SPDX-License-Identifier: Apache-2.0
#include "net/request.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "net/clock.h"

namespace nccltune::net {
namespace {

TEST(Depth, IsThereWithSixRequestsAndGoneAMillisecondLater) {
  Depth depth;
  EXPECT_FALSE(depth.Deep(NowNs()));
  depth.Begun(5);
  EXPECT_FALSE(depth.Deep(NowNs()));
  const int64_t before = NowNs();
  depth.Begun(6);
  const int64_t after = NowNs();
  EXPECT_TRUE(depth.Deep(before));
  EXPECT_FALSE(depth.Deep(after + 2 * kNsPerMs));
}

TEST(Depth, IsNotTakenAwayByFewerRequests) {
  Depth depth;
  const int64_t before = NowNs();
  depth.Begun(6);
  depth.Begun(1);
  EXPECT_TRUE(depth.Deep(before));
}

}  // namespace
}  // namespace nccltune::net
