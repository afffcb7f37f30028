// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/counts.h"

#include <gtest/gtest.h>

namespace nccltune::sendrecv {
namespace {

TEST(Counts, NameWhatWasTakenAlone) {
  Counts counts;
  EXPECT_EQ(counts.Report(), "");
  counts.Add(Route::kPushed, 100);
  counts.Add(Route::kPushed, 20);
  counts.Add(Route::kDry, 7);
  EXPECT_EQ(counts.Report(),
            "copy engine, pushed: 2 messages, 120 bytes\n"
            "NCCL: dry run, a copy engine would have carried it: 1 messages, 7 bytes\n");
  EXPECT_EQ(counts.Get(Route::kPushed).bytes, 120U);
  EXPECT_EQ(counts.Get(Route::kPulled).messages, 0U);
}

}  // namespace
}  // namespace nccltune::sendrecv
