// SPDX-License-Identifier: Apache-2.0
// The shipped shared object, by its symbols.
#include "abi/tuner.h"
#include "testing.h"
#include "tuner/control.h"

namespace nccltune::tuner {
namespace {

bool IsLoaded() {
  void* const handle = dlopen(TUNER_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

TEST(SharedObject, LeavesAndComesBack) {
  for (int round = 0; round < 3; ++round) {
    void* const library = dlopen(TUNER_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto* const tuner =
        static_cast<const abi::TunerV7*>(dlsym(library, "ncclTunerPlugin_v7"));
    ASSERT_NE(tuner, nullptr);
    EXPECT_STREQ(tuner->name, "nccltune");
    void* context = nullptr;
    EXPECT_EQ(tuner->init(&context, 1, 8, 1, nullptr, nullptr, nullptr), abi::kSuccess);
    std::array<float, 21> table{};
    table.fill(5.0F);
    int channels = 0;
    EXPECT_EQ(tuner->get_coll_info(context, abi::kAllReduce, 1024, 1,
                                   reinterpret_cast<float**>(table.data()), 7, 3, 0, &channels),
              abi::kSuccess);
    EXPECT_EQ(tuner->finalize(context), abi::kSuccess);
    EXPECT_TRUE(IsLoaded());
    EXPECT_EQ(dlclose(library), 0);
    EXPECT_FALSE(IsLoaded());
  }
}

TEST(SharedObject, TheControlInterfaceIsFoundInTheLoadedPlugin) {
  void* const library = dlopen(TUNER_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const force =
      reinterpret_cast<decltype(&nccltune_tuner_force)>(dlsym(library, "nccltune_tuner_force"));
  auto* const release =
      reinterpret_cast<decltype(&nccltune_tuner_release)>(dlsym(library, "nccltune_tuner_release"));
  const auto* const tuner = static_cast<const abi::TunerV2*>(dlsym(library, "ncclTunerPlugin_v2"));
  ASSERT_NE(force, nullptr);
  ASSERT_NE(release, nullptr);
  ASSERT_NE(tuner, nullptr);
  void* context = nullptr;
  ASSERT_EQ(tuner->init(8, 1, nullptr, &context), abi::kSuccess);
  EXPECT_EQ(force(abi::kAllReduce, abi::kTree, abi::kLl, 3, 0), NCCLTUNE_TUNER_OK);
  int algorithm = -1;
  int protocol = -1;
  int channels = 0;
  EXPECT_EQ(tuner->get_coll_info(context, abi::kAllReduce, 1024, 0, 0, 1, &algorithm, &protocol,
                                 &channels),
            abi::kSuccess);
  EXPECT_EQ(algorithm, abi::kTree);
  EXPECT_EQ(protocol, abi::kLl);
  EXPECT_EQ(channels, 3);
  EXPECT_EQ(release(NCCLTUNE_TUNER_ALL), NCCLTUNE_TUNER_OK);
  EXPECT_EQ(tuner->destroy(context), abi::kSuccess);
  EXPECT_EQ(dlclose(library), 0);
}

}  // namespace
}  // namespace nccltune::tuner
