// SPDX-License-Identifier: Apache-2.0
#include "host/guarded.h"
#include "testing.h"

namespace nccltune::host {
namespace {

TEST(Guarded, SeesNothingWhileWritesStayInside) {
  Guarded<int> number("channel count", 7);
  EXPECT_EQ(number.get(), 7);
  *number.data() = -1;
  EXPECT_EQ(number.get(), -1);
  EXPECT_EQ(number.TakeDamage(), std::nullopt);
  GuardedBytes bytes("cost table", 84);
  std::memset(bytes.data(), 0xFF, bytes.size());
  EXPECT_EQ(bytes.TakeDamage(), std::nullopt);
}

TEST(Guarded, ReportsHowFarAWriteMissed) {
  Guarded<float> cost("cost table", 1.0f);
  cost.data()[1] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 4 behind "
            "it");
  EXPECT_EQ(cost.TakeDamage(), std::nullopt);
  cost.data()[-2] = 0.0f;
  cost.data()[9] = 0.0f;
  EXPECT_EQ(cost.TakeDamage(),
            "wrote outside of the cost table (4 bytes): 4 bytes up to 8 before "
            "it, 4 bytes up to 36 behind it");
  EXPECT_EQ(cost.get(), 1.0f);
}

TEST(Guarded, SeesAWriteAnywhereNearby) {
  GuardedBytes bytes("model constants", 1152);
  auto* data = static_cast<unsigned char*>(bytes.data());
  for (const int at : {-4096, -1, 1152, 5247}) {
    data[at] ^= 1;
    EXPECT_NE(bytes.TakeDamage(), std::nullopt) << at;
    EXPECT_EQ(bytes.TakeDamage(), std::nullopt) << at;
  }
}

}  // namespace
}  // namespace nccltune::host
