// SPDX-License-Identifier: Apache-2.0
// Runs the scenarios of tests/gpu/one_gpu.py on the stand-ins. NCCL alone and NCCL with the
// send/recv library must give the same results.
#include "program_output.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

std::string OutputOf(const std::string& arguments, Environment environment) {
  environment.insert({"SOFT_NCCL_BUFFER", "1048576"});
  return AllOutputOf(InEnvironment(environment, std::string(SCENARIOS) + " " + arguments));
}

Environment WithLibrary(const std::string& mode) {
  return {{"LD_PRELOAD", LIBRARY},
          {"NCCLTUNE_SENDRECV", mode},
          {"NCCLTUNE_SENDRECV_FROM", "256K"},
          {"NCCLTUNE_SENDRECV_EAGER", "1M"},
          {"NCCLTUNE_SENDRECV_STATS", "-"},
          {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
}

// By rank, in the order in which each rank printed them.
std::vector<std::string> ResultsOf(const std::string& output) {
  std::vector<std::string> results;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" result ") == 1) results.push_back(line);
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const auto& one, const auto& other) { return one[0] < other[0]; });
  return results;
}

// Returns whether copy engines carried messages of this process or its peer.
bool Carried(const std::string& output) {
  return output.find(": copy engine, ") != std::string::npos;
}

class Scenario : public testing::TestWithParam<const char*> {};

TEST_P(Scenario, GivesTheSameResultsWithTheLibrary) {
  const std::string arguments = GetParam();
  const std::string native = OutputOf(arguments, {});
  if (native.find(" skip ") != std::string::npos) GTEST_SKIP() << native;
  const std::vector<std::string> expected = ResultsOf(native);
  ASSERT_FALSE(expected.empty()) << native;
  EXPECT_EQ(native.find("WRONG"), std::string::npos) << native;
  EXPECT_EQ(native.find("status "), std::string::npos) << native;
  for (const char* const mode : {"1", "verify"}) {
    const std::string output = OutputOf(arguments, WithLibrary(mode));
    EXPECT_EQ(ResultsOf(output), expected) << mode << "\n" << output;
    EXPECT_EQ(output.find("status "), std::string::npos) << mode << "\n" << output;
    EXPECT_TRUE(Carried(output)) << mode << "\n" << output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Scenario,
    testing::Values("exchange large=1M", "exchange large=1048577 count=3", "simulate large=1M",
                    "order large=1M count=20", "crowd large=2M bytes=300K count=40 late=0",
                    "crowd large=2M bytes=300K count=40 late=1", "split large=1M",
                    "abort large=1M count=9", "churn large=1M count=24",
                    "million large=4M operations=3000"),
    [](const auto& each) {
      std::string name = each.param;
      std::erase_if(name, [](char letter) { return std::isalnum(letter) == 0; });
      return name;
    });

TEST(ScenarioProgram, RejectsWhatItDoesNotKnow) {
  EXPECT_NE(OutputOf("exchange largest=1M", {}).find("unknown setting largest=1M"),
            std::string::npos);
  EXPECT_NE(OutputOf("exchanges", {}).find("usage: sendrecv_scenarios NAME"), std::string::npos);
}

}  // namespace
}  // namespace nccltune::sendrecv
