// SPDX-License-Identifier: Apache-2.0
#include "common/little_endian.h"
#include "testing.h"

namespace nccltune::little_endian {
namespace {

template <typename T>
class LittleEndian : public testing::Test {};
using Types = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(LittleEndian, Types);

TYPED_TEST(LittleEndian, PutsTheLowestByteFirstAndNothingElse) {
  std::array<std::byte, 16> bytes{};
  Put(bytes, 3, static_cast<TypeParam>(0x8877665544332211U));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool within = i >= 3 && i < 3 + sizeof(TypeParam);
    EXPECT_EQ(std::to_integer<size_t>(bytes[i]), within ? 0x11 * (i - 2) : 0) << i;
  }
}

TYPED_TEST(LittleEndian, GetsWhatWasPut) {
  for (const TypeParam value :
       {TypeParam{0}, TypeParam{1}, TypeParam{0x80}, std::numeric_limits<TypeParam>::max()}) {
    std::array<std::byte, 16> bytes{};
    bytes.fill(std::byte{0xa5});
    Put(bytes, 5, value);
    EXPECT_EQ(Get<TypeParam>(bytes, 5), value);
  }
}

TYPED_TEST(LittleEndian, AppendsToText) {
  std::string text = "x";
  Append(&text, static_cast<TypeParam>(0xfe));
  ASSERT_EQ(text.size(), 1 + sizeof(TypeParam));
  EXPECT_EQ(text.substr(0, 2), "x\xfe");
  EXPECT_EQ(Get<TypeParam>(text, 1), TypeParam{0xfe});
}

}  // namespace
}  // namespace nccltune::little_endian
