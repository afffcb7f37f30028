// SPDX-License-Identifier: Apache-2.0
#include "net/net_settings.h"
#include "net/kernel_folder.h"
#include "testing.h"

namespace nccltune::net {
namespace {

TEST(NetSettings, WithoutVariablesTheyAreTheDefaultsOfTheirStruct) {
  std::vector<std::string> warnings;
  const NetSettings read = ReadNetSettings(&warnings);
  const NetSettings defaults;
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(read.flows, defaults.flows);
  EXPECT_EQ(read.threads, defaults.threads);
  EXPECT_EQ(read.eager_bytes, defaults.eager_bytes);
  EXPECT_EQ(read.timeout_s, defaults.timeout_s);
  EXPECT_EQ(read.path_timeout_ms, defaults.path_timeout_ms);
  EXPECT_EQ(read.down_timeout_s, defaults.down_timeout_s);
  EXPECT_EQ(read.ports.first, defaults.ports.first);
  EXPECT_EQ(read.ports.last, defaults.ports.last);
  EXPECT_EQ(read.zero_copy, defaults.zero_copy);
  EXPECT_EQ(read.open_files, defaults.open_files);
}

TEST(NetSettings, EachIsReadFromItsVariable) {
  const ScopedVariable flows("NCCLTUNE_NET_FLOWS", "12");
  const ScopedVariable threads("NCCLTUNE_NET_THREADS", "3");
  const ScopedVariable eager("NCCLTUNE_NET_EAGER", "0");
  const ScopedVariable devices("NCCLTUNE_NET_DEVICES", "3");
  const ScopedVariable timeout("NCCLTUNE_NET_TIMEOUT", "30");
  const ScopedVariable path_timeout("NCCLTUNE_NET_PATH_TIMEOUT", "7");
  const ScopedVariable down_timeout("NCCLTUNE_NET_DOWN_TIMEOUT", "900");
  const ScopedVariable ports("NCCLTUNE_NET_PORTS", "50000-65535");
  const ScopedVariable nofile("NCCLTUNE_NET_NOFILE", "0");
  std::vector<std::string> warnings;
  const NetSettings read = ReadNetSettings(&warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(read.flows, 12);
  EXPECT_EQ(read.threads, 3);
  EXPECT_EQ(read.eager_bytes, 0U);
  EXPECT_EQ(read.devices, 3);
  EXPECT_EQ(read.timeout_s, 30);
  EXPECT_EQ(read.path_timeout_ms, 7000);
  EXPECT_EQ(read.down_timeout_s, 900);
  EXPECT_EQ(read.ports.first, 50000);
  EXPECT_EQ(read.ports.last, 65535);
  EXPECT_EQ(read.open_files, 0U);
}

TEST(NetSettings, EveryBadValueIsNamedAndItsDefaultTaken) {
  const ScopedVariable flows("NCCLTUNE_NET_FLOWS", "65");
  const ScopedVariable threads("NCCLTUNE_NET_THREADS", "none");
  const ScopedVariable eager("NCCLTUNE_NET_EAGER", "2M");
  const ScopedVariable devices("NCCLTUNE_NET_DEVICES", "9");
  const ScopedVariable timeout("NCCLTUNE_NET_TIMEOUT", "10s");
  const ScopedVariable ports("NCCLTUNE_NET_PORTS", "50000");
  const ScopedVariable zero_copy("NCCLTUNE_NET_ZEROCOPY", "yes");
  const ScopedVariable nofile("NCCLTUNE_NET_NOFILE", "1048577");
  std::vector<std::string> warnings;
  const NetSettings read = ReadNetSettings(&warnings);
  EXPECT_EQ(
      warnings,
      (std::vector<std::string>{
          "NCCLTUNE_NET_FLOWS='65' is not auto or 1 to 64; using auto",
          "NCCLTUNE_NET_THREADS='none' is not auto or 1 to 64; using auto",
          "NCCLTUNE_NET_EAGER='2M' is not 0 to 1M; using 16K",
          "NCCLTUNE_NET_DEVICES='9' is not auto or 1 to 8; using auto",
          "NCCLTUNE_NET_TIMEOUT='10s' is not 0 to 1000000; using 600",
          "NCCLTUNE_NET_PORTS='50000' is not first-last of 1 to 65535; treating it as not set",
          "NCCLTUNE_NET_NOFILE='1048577' is not 0 to 1048576; using 65536",
          "NCCLTUNE_NET_ZEROCOPY='yes' is not one of auto 0 1; using auto",
      }));
  const NetSettings defaults;
  EXPECT_EQ(read.flows, defaults.flows);
  EXPECT_EQ(read.threads, defaults.threads);
  EXPECT_EQ(read.eager_bytes, defaults.eager_bytes);
  EXPECT_EQ(read.devices, defaults.devices);
  EXPECT_EQ(read.timeout_s, defaults.timeout_s);
  EXPECT_EQ(read.ports.first, 0);
  EXPECT_EQ(read.zero_copy, ZeroCopyMode::kAuto);
}

TEST(NetSettings, LimitsOfAnOutageFollowTheTimeoutOfTheConnection) {
  struct Limits {
    const char* timeout;
    int path_ms;
    int down_s;
  };
  for (const Limits& expected :
       {Limits{"600", 60'000, 600}, Limits{"1800", 60'000, 1800}, Limits{"120", 12'000, 120},
        Limits{"5", 1000, 5}, Limits{"0", 60'000, 0}}) {
    const ScopedVariable timeout("NCCLTUNE_NET_TIMEOUT", expected.timeout);
    std::vector<std::string> warnings;
    const NetSettings read = ReadNetSettings(&warnings);
    EXPECT_EQ(read.path_timeout_ms, expected.path_ms) << expected.timeout;
    EXPECT_EQ(read.down_timeout_s, expected.down_s) << expected.timeout;
  }
}

TEST(NetSettings, SendsWithoutACopyAreAutoOffOrAlways) {
  std::vector<std::string> warnings;
  for (const auto& [value, mode] :
       {std::pair("auto", ZeroCopyMode::kAuto), std::pair("0", ZeroCopyMode::kOff),
        std::pair("1", ZeroCopyMode::kAlways)}) {
    const ScopedVariable zero_copy("NCCLTUNE_NET_ZEROCOPY", value);
    EXPECT_EQ(ReadNetSettings(&warnings).zero_copy, mode) << value;
  }
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace nccltune::net
