// SPDX-License-Identifier: Apache-2.0
#include "host/net/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nccltune::host::net {
namespace {

std::string ErrorOf(const std::vector<std::string_view>& arguments) {
  NetCheckOptions options;
  std::string error;
  return ParseOptions(arguments, &options, &error) ? "" : error;
}

TEST(NetHostOptionsTest, AreRead) {
  NetCheckOptions options;
  std::string error;
  ASSERT_TRUE(ParseOptions({"throughput", "--plugin=p.so", "--fork", "--slice", "128K",
                            "--connections", "4", "--seconds", "0.5", "--virtual-device", "0,2"},
                           &options, &error))
      << error;
  EXPECT_EQ(options.mode, NetCheckMode::kThroughput);
  EXPECT_EQ(options.plugin, "p.so");
  EXPECT_EQ(options.sizes.list, (std::vector<uint64_t>{131072}));
  EXPECT_EQ(options.connections, 4);
  EXPECT_EQ(options.seconds, 0.5);
  EXPECT_EQ(options.members, (std::vector<int>{0, 2}));
}

TEST(NetHostOptionsTest, SizesAreAListOrARange) {
  NetCheckOptions options;
  std::string error;
  ASSERT_TRUE(ParseOptions({"transfer", "--plugin", "p", "--fork", "--sizes", "0,1,4K,1G"},
                           &options, &error));
  EXPECT_EQ(options.sizes.list, (std::vector<uint64_t>{0, 1, 4096, 1U << 30U}));
  EXPECT_FALSE(options.sizes.range);
  NetCheckOptions other;
  ASSERT_TRUE(
      ParseOptions({"transfer", "--plugin", "p", "--fork", "--sizes", "1-2M"}, &other, &error));
  EXPECT_EQ(other.sizes.list, (std::vector<uint64_t>{1, 2U << 20U}));
  EXPECT_TRUE(other.sizes.range);
}

TEST(NetHostOptionsTest, InvalidInputIsReported) {
  const std::vector<std::pair<std::vector<std::string_view>, const char*>> cases = {
      {{"transfer", "--fork"}, "--plugin is missing"},
      {{"--plugin", "p", "--fork"}, "the mode is missing"},
      {{"transfer", "--plugin", "p"}, "give either --fork or --rendezvous"},
      {{"transfer", "idle", "--plugin", "p"}, "two modes are given"},
      {{"copy"}, "'copy' is no mode"},
      {{"transfer", "--plugin", "p", "--fork", "--window", "33"}, "'33' is no number from 1 to 32"},
      {{"transfer", "--plugin", "p", "--fork", "--sizes", "2G"}, "neither a list"},
      {{"transfer", "--plugin", "p", "--fork", "--sizes", "9-1"}, "neither a list"},
      {{"transfer", "--plugin", "p", "--rendezvous", "1", "--kill-after", "1"}, "need --fork"},
      {{"transfer", "--plugin", "p", "--fork", "--continue-after", "1"}, "needs --stop-after"},
      {{"transfer", "--plugin"}, "lacks its value"},
      {{"transfer", "--nonsense", "1"}, "'--nonsense' is not an option"},
  };
  for (const auto& [arguments, message] : cases) {
    EXPECT_NE(ErrorOf(arguments).find(message), std::string::npos) << ErrorOf(arguments);
  }
}

TEST(NetHostOptionsTest, TheHelpNamesEveryOption) {
  for (const std::string_view name : {"--plugin",
                                      "--interface",
                                      "--device",
                                      "--virtual-device",
                                      "--communicators",
                                      "--traffic-class",
                                      "--fork",
                                      "--rendezvous",
                                      "--rank",
                                      "--connections",
                                      "--direction",
                                      "--sizes",
                                      "--messages",
                                      "--window",
                                      "--receive-slack",
                                      "--slice",
                                      "--seconds",
                                      "--warm-up",
                                      "--check",
                                      "--seed",
                                      "--memory",
                                      "--rounds",
                                      "--order",
                                      "--optional-completion",
                                      "--nulls",
                                      "--no-sizes",
                                      "--one-service-thread",
                                      "--idle-listens",
                                      "--connect-delay",
                                      "--accept-delay",
                                      "--close-in-flight",
                                      "--kill-after",
                                      "--stop-after",
                                      "--continue-after",
                                      "--timeout",
                                      "--log",
                                      "--list-symbols"}) {
    EXPECT_NE(HelpText().find(name), std::string_view::npos) << name;
  }
}

}  // namespace
}  // namespace nccltune::host::net
