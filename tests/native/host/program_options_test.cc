// SPDX-License-Identifier: Apache-2.0
#include "host/program_options.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::host {
namespace {

using Arguments = std::vector<std::string_view>;

ProgramOptions Good(const Arguments& arguments) {
  ProgramOptions options;
  std::string error;
  EXPECT_TRUE(ParseProgramOptions(arguments, &options, &error)) << error;
  return options;
}

std::string Problem(const Arguments& arguments) {
  ProgramOptions options;
  std::string error;
  return ParseProgramOptions(arguments, &options, &error) ? "no error" : error;
}

// Returns the mandatory arguments plus `more`.
Arguments With(const Arguments& more) {
  Arguments all = {"--tuner", "t.so", "--nccl", "2.28.9", "--nodes", "2", "--ranks", "16"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(ProgramOptions, HaveDefaultsFromTheScale) {
  const ProgramOptions options =
      Good({"--tuner=t.so", "--nccl=2.28", "--nodes=3", "--ranks=16", "--verbose"});
  EXPECT_EQ(options.host.tuner, "t.so");
  EXPECT_EQ(ToString(options.host.nccl), "2.28.0");
  EXPECT_EQ(options.host.platform.min_ranks_per_node, 5);
  EXPECT_EQ(options.host.platform.max_ranks_per_node, 6);
  EXPECT_TRUE(options.host.platform.nvls);
  EXPECT_EQ(options.host.channels, std::nullopt);
  EXPECT_TRUE(options.verbose);
  EXPECT_FALSE(options.list_symbols);
}

TEST(ProgramOptions, TakeAllThatTheHelpLists) {
  const ProgramOptions options = Good(With({"--min-ranks-per-node", "4", "--max-ranks-per-node",
                                            "12", "--channels", "24", "--without", "nvls,ll128"}));
  EXPECT_EQ(options.host.platform.min_ranks_per_node, 4);
  EXPECT_EQ(options.host.platform.max_ranks_per_node, 12);
  EXPECT_EQ(options.host.channels, 24);
  EXPECT_FALSE(options.host.platform.nvls);
  EXPECT_TRUE(options.host.platform.collnet);
  EXPECT_FALSE(options.host.platform.ll128);
  EXPECT_TRUE(Good({"--list-symbols", "--tuner", "t.so"}).list_symbols);
  EXPECT_TRUE(Good({"--help"}).help);
  for (const char* option :
       {"--tuner", "--nccl", "--nodes", "--ranks", "--min-ranks-per-node", "--max-ranks-per-node",
        "--channels", "--without", "--list-symbols", "--verbose", "--help"}) {
    EXPECT_NE(HelpText().find(option), std::string_view::npos) << option;
  }
}

TEST(ProgramOptions, InvalidOptionsAreReported) {
  EXPECT_EQ(Problem({}), "--tuner is missing");
  EXPECT_EQ(Problem({"--tuner", ""}), "--tuner: the path is empty");
  EXPECT_EQ(Problem({"--tuner", "t.so"}), "--nccl is missing");
  EXPECT_EQ(Problem({"--tuner", "t.so", "--nccl", "2.28"}), "--nodes and --ranks are needed");
  EXPECT_EQ(Problem(With({"--nccl", "2"})), "--nccl: '2' is no version like 2.28.9");
  EXPECT_EQ(Problem(With({"--nccl", "2.28.9.1"})), "--nccl: '2.28.9.1' is no version like 2.28.9");
  EXPECT_EQ(Problem(With({"--nccl", "2.28.x"})), "--nccl: '2.28.x' is no version like 2.28.9");
  EXPECT_EQ(Problem(With({"--nccl", "2.20.5"})),
            "--nccl: NCCL before 2.21 took plugins of interface v1 only");
  EXPECT_EQ(Problem(With({"--ranks", "0"})), "--ranks: '0' is no number from 1 to 16777216");
  EXPECT_EQ(Problem(With({"--ranks", "8x"})), "--ranks: '8x' is no number from 1 to 16777216");
  EXPECT_EQ(Problem(With({"--nodes", "1", "--ranks", "1"})),
            "--ranks: with one rank NCCL asks no tuner");
  EXPECT_EQ(Problem(With({"--nodes", "17"})), "--nodes: there are fewer ranks than nodes");
  EXPECT_EQ(Problem(With({"--min-ranks-per-node", "9"})),
            "ranks per node contradict --nodes and --ranks");
  EXPECT_EQ(Problem(With({"--max-ranks-per-node", "7"})),
            "ranks per node contradict --nodes and --ranks");
  EXPECT_EQ(Problem(With({"--without", "nvls,pat"})),
            "--without: 'pat' is none of nvls, collnet, ll128");
  EXPECT_EQ(Problem(With({"--frob", "1"})), "'--frob' is not an option");
  EXPECT_EQ(Problem(With({"--frob"})), "'--frob' is not an option");
}

}  // namespace
}  // namespace nccltune::host
