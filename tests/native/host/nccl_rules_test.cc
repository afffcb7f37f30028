// SPDX-License-Identifier: Apache-2.0
#include "host/nccl_rules.h"

#include <gtest/gtest.h>

namespace nccltune::host {
namespace {

const NcclRules& ExactRules(int minor) {
  bool exact = false;
  const NcclRules* rules = RulesFor({2, minor, 3}, &exact);
  EXPECT_NE(rules, nullptr) << minor;
  EXPECT_TRUE(exact) << minor;
  return *rules;
}

TEST(NcclRules, KnowWhichInterfaceIsNative) {
  const int native[] = {2, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6, 7};  // 2.21 to 2.32
  for (int minor = 21; minor <= 32; ++minor) {
    EXPECT_EQ(ExactRules(minor).native_interface, native[minor - 21]) << minor;
    EXPECT_EQ(ExactRules(minor).algorithms, minor < 23 ? 6 : 7) << minor;
  }
}

TEST(NcclRules, KnowWhenBehaviourChanged) {
  for (int minor = 21; minor <= 32; ++minor) {
    const NcclRules& rules = ExactRules(minor);
    EXPECT_EQ(rules.channels, minor < 31 ? ChannelRule::kReplaces : ChannelRule::kCaps);
    EXPECT_EQ(rules.constants, minor < 28   ? ConstantsRule::kNone
                               : minor < 31 ? ConstantsRule::kDefaultsKept
                                            : ConstantsRule::kZerosAndDropped);
    EXPECT_EQ(rules.selection, minor < 22   ? Selection::kPluginDirect
                               : minor < 31 ? Selection::kLeastNotNegative
                                            : Selection::kLeastOfOffered);
    EXPECT_EQ(rules.last_resort, minor == 22 || minor == 23);
    EXPECT_EQ(rules.max_channels, minor < 25 ? 32 : 64);
  }
}

TEST(NcclRules, EndWithTheNewestKnownVersion) {
  bool exact = true;
  EXPECT_EQ(RulesFor({2, 20, 5}, &exact), nullptr);
  EXPECT_EQ(RulesFor({1, 30, 0}, &exact), nullptr);
  const NcclRules* newest = RulesFor({2, 32, 6}, &exact);
  EXPECT_TRUE(exact);
  EXPECT_EQ(RulesFor({2, 33, 0}, &exact), newest);
  EXPECT_FALSE(exact);
  EXPECT_EQ(RulesFor({3, 0, 0}, &exact), newest);
  EXPECT_FALSE(exact);
}

}  // namespace
}  // namespace nccltune::host
