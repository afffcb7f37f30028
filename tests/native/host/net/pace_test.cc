// SPDX-License-Identifier: Apache-2.0
// Tests the library that slows and resets connections, in a small test program.
#include <gtest/gtest.h>

#include <string>

#include "host/net/support.h"

namespace nccltune::host::net {
namespace {

std::string Probe(const std::string& settings, const std::string& arguments) {
  const CommandResult outcome =
      RunCommand(settings + " LD_PRELOAD=" PACE " " PACE_PROBE " " + arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  return outcome.output;
}

TEST(PaceTest, NothingIsSlowedUnasked) { EXPECT_EQ(Probe("", "3"), "0\n0\n0\n"); }

TEST(PaceTest, OneOfEveryFewIsSlowed) {
  EXPECT_EQ(Probe("PACE_EVERY=3 PACE_WHICH=1 PACE_BYTES_PER_S=1000000", "6"),
            "0\n1000000\n0\n0\n1000000\n0\n");
}

TEST(PaceTest, TheOthersHaveARateOfTheirOwn) {
  EXPECT_EQ(Probe("PACE_SKIP=1 PACE_EVERY=2 PACE_BYTES_PER_S=1000000 "
                  "PACE_OTHERS_BYTES_PER_S=10000000",
                  "5"),
            "0\n1000000\n10000000\n1000000\n10000000\n");
}

TEST(PaceTest, OtherPortsAreLeftAlone) {
  EXPECT_EQ(Probe("PACE_PORTS=1-2 PACE_EVERY=1 PACE_BYTES_PER_S=1000000", "2"), "0\n0\n");
  EXPECT_EQ(Probe("PACE_PORTS=3-65535 PACE_EVERY=1 PACE_BYTES_PER_S=1000000", "1"), "1000000\n");
}

TEST(PaceTest, AChosenOneIsReset) {
  EXPECT_EQ(Probe("PACE_EVERY=4 PACE_WHICH=2 PACE_RESET_MS=50", "4 reset"),
            "0\n0\n0\n0\n2 reset reset\n");
}

TEST(PaceTest, APluginsConnectionsAreMeant) {
  const CommandResult outcome = RunCommand(
      "PACE_EVERY=1 PACE_RESET_MS=100 ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=" PACE
      " " NET_HOST " throughput --fork --seconds 20 --plugin " NAIVE_NET_PLUGIN);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find("returned remote error"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace nccltune::host::net
