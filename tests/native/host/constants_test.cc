// SPDX-License-Identifier: Apache-2.0
#include "abi/tuner.h"
#include "host/model_constants.h"
#include "testing.h"

namespace nccltune::host {
namespace {

TEST(ModelConstants, AreThoseOfTheVersion) {
  const abi::TunerConstantsV5 newest = DefaultConstants({2, 30, 7});
  EXPECT_EQ(newest.base_latencies[abi::kTree][abi::kLl], 6.8);
  EXPECT_EQ(newest.hw_latencies[abi::kLinkNet][abi::kRing][abi::kSimple], 14);
  EXPECT_EQ(newest.ll_max_bws[abi::kHopper][abi::kTwoNodes], 45);
  EXPECT_EQ(newest.per_ch_max_nvls_tree_bws[abi::kBlackwell][abi::kFourNodes], 80);
  const auto ring_ll128 = [](NcclVersion version, int scale) {
    return DefaultConstants(version).per_ch_max_ring_ll128_bws[abi::kBlackwell][scale];
  };
  EXPECT_EQ(ring_ll128({2, 28, 3}, abi::kTwoNodes), 73.4);
  EXPECT_EQ(ring_ll128({2, 28, 9}, abi::kTwoNodes), 34.6);
  EXPECT_EQ(ring_ll128({2, 28, 9}, abi::kOneNode), 73.4);
  EXPECT_EQ(ring_ll128({2, 29, 2}, abi::kOneNode), 34.5);
  EXPECT_EQ(ring_ll128({2, 29, 7}, abi::kOneNode), 40);
  const auto nvls_tree = [](NcclVersion version) {
    return DefaultConstants(version).per_ch_max_nvls_tree_bws[abi::kBlackwell][abi::kFourNodes];
  };
  EXPECT_EQ(nvls_tree({2, 28, 7}), 43.1);
  EXPECT_EQ(nvls_tree({2, 28, 9}), 43.8);
  EXPECT_EQ(nvls_tree({2, 29, 7}), 43.8);
}

// Returns the name of the constant at that byte offset of the struct.
template <typename Constants>
std::string NameAt(size_t offset) {
  const std::vector<double> before(sizeof(Constants) / sizeof(double));
  std::vector<double> after = before;
  after[offset / sizeof(double)] = 1;
  const std::vector<ConstantChange> changes = ConstantChanges(before, after);
  EXPECT_EQ(changes.size(), 1u);
  return changes.empty() ? "" : changes[0].name;
}

TEST(ConstantChanges, HaveTheNamesOfNccl) {
  using V5 = abi::TunerConstantsV5;
  using V7 = abi::TunerConstantsV7;
  EXPECT_EQ(NameAt<V5>(0), "baseLatencies[0][0]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, hw_latencies[2][6][1])), "hwLatencies[2][6][1]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, ll_max_bws[3][2])), "llMaxBws[3][2]");
  EXPECT_EQ(NameAt<V5>(offsetof(V5, per_ch_max_nvls_tree_bws[3][2])), "perChMaxNVLSTreeBws[3][2]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, ll_max_bws[4][2])), "llMaxBws[4][2]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, per_ch_max_tree_bws[0][1])), "perChMaxTreeBws[0][1]");
  EXPECT_EQ(NameAt<V7>(offsetof(V7, per_ch_max_nvls_tree_bws[4][2])), "perChMaxNVLSTreeBws[4][2]");
}

TEST(ConstantChanges, AreNoneForNoConstants) {
  const GuardedBytes nothing("model constants", 0);
  EXPECT_TRUE(ConstantChanges(ConstantValues(nothing), ConstantValues(nothing)).empty());
}

}  // namespace
}  // namespace nccltune::host
