// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace nccltune::bench {
namespace {

using Arguments = std::vector<std::string_view>;

std::string ErrorOf(const Arguments& arguments) {
  BenchOptions options;
  std::string error;
  EXPECT_FALSE(ParseOptions(arguments, &options, &error));
  return error;
}

TEST(BenchOptions, NoneAreNeeded) {
  BenchOptions options;
  std::string error;
  ASSERT_TRUE(ParseOptions({}, &options, &error)) << error;
  EXPECT_FALSE(options.world.rank);
  EXPECT_EQ(options.world.gpus_per_process, 1);
  EXPECT_EQ(options.start_limit, std::chrono::seconds(120));
}

TEST(BenchOptions, AllAreRead) {
  BenchOptions options;
  std::string error;
  ASSERT_TRUE(ParseOptions({"--rank",      "1",
                            "--size=4",    "--local-rank",
                            "0",           "--gpus-per-process",
                            "2",           "--launcher",
                            "none",        "--emulate-nodes",
                            "2",           "--rendezvous",
                            "[::1]:29500", "--start-timeout",
                            "1.5",         "--tuner",
                            "/t.so",       "--replay",
                            "study",       "--nccl-version",
                            "2.30.7",      "--scale",
                            "2/4",         "--pace",
                            "0.5"},
                           &options, &error))
      << error;
  EXPECT_EQ(options.world.rank, 1);
  EXPECT_EQ(options.world.size, 4);
  EXPECT_EQ(options.world.local_rank, 0);
  EXPECT_EQ(options.world.gpus_per_process, 2);
  EXPECT_EQ(options.world.launcher, "none");
  EXPECT_EQ(options.world.emulate_nodes, 2);
  EXPECT_EQ(options.rendezvous, (Endpoint{"::1", 29500}));
  EXPECT_EQ(options.start_limit, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.tuner, "/t.so");
  EXPECT_EQ(options.replay, "study");
  EXPECT_EQ(options.nccl_version, (NcclVersion{2, 30, 7}));
  EXPECT_EQ(options.scale, std::pair(2, 4));
  EXPECT_EQ(options.pace, 0.5);
  ASSERT_TRUE(ParseOptions({"--nccl", "/l.so"}, &options, &error));
  EXPECT_EQ(options.nccl, "/l.so");
  EXPECT_FALSE(options.scale) << "nothing is left of the call before";
}

TEST(BenchOptions, InvalidInputIsReported) {
  const std::pair<Arguments, std::string> cases[] = {
      {{"--rnak", "1"}, "'--rnak' is not an option"},
      {{"--replai", "s"}, "'--replai' is not an option; did you mean '--replay'?"},
      {{"--rank"}, "--rank lacks its value"},
      {{"study"}, "'study' is not an option"},
      {{"--rank", "x"}, "--rank: 'x' is no number from 0"},
      {{"--size", "0"}, "--size: '0' is no number from 1"},
      {{"--gpus-per-process=65"}, "'65' is no number from 1 to 64"},
      {{"--launcher", "openmp"}, "did you mean 'openmpi'?"},
      {{"--rendezvous", "host"}, "'host' is not of the form HOST:PORT"},
      {{"--start-timeout", "-1"}, "'-1' is no number from 0"},
      {{"--start-timeout", "nan"}, "'nan' is no number"},
      {{"--nccl", ""}, "--nccl: the path is empty"},
      {{"--replay", "s", "--nccl-version", "two"}, "'two' is no version like 2.28.9"},
      {{"--replay", "s", "--scale", "4"}, "--scale: '4' is not of the form NODES/RANKS"},
      {{"--replay", "s", "--scale", "0/4"}, "--scale: '0/4' is not of the form NODES/RANKS"},
      {{"--scale", "1/4"}, "--scale is for --replay"},
      {{"--pace", "1"}, "--pace is for --replay"},
      {{"--nccl-version", "2.28.9"}, "--nccl-version is for --replay"},
      {{"--replay", "s", "--nccl", "/l.so"}, "--nccl and --replay exclude each other"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = ErrorOf(arguments);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST(BenchOptions, HelpNeedsNothingElse) {
  BenchOptions options;
  std::string error;
  EXPECT_TRUE(ParseOptions({"--scale", "1/4", "--help"}, &options, &error));
  EXPECT_TRUE(options.help);
  EXPECT_TRUE(ParseOptions({"--version"}, &options, &error));
  EXPECT_TRUE(options.version);
}

// The reference page documents every option of the help text.
TEST(BenchOptions, AreInTheReference) {
  std::ifstream page(REFERENCE_PAGE);
  ASSERT_TRUE(page.is_open()) << REFERENCE_PAGE;
  std::stringstream text;
  text << page.rdbuf();
  std::istringstream help{std::string(HelpText())};
  int found = 0;
  for (std::string word; help >> word;) {
    if (!word.starts_with("--")) continue;
    word = word.substr(0, word.find_first_not_of("-abcdefghijklmnopqrstuvwxyz"));
    EXPECT_NE(text.str().find("`" + word), std::string::npos) << word;
    ++found;
  }
  EXPECT_GT(found, 15);
}

}  // namespace
}  // namespace nccltune::bench
