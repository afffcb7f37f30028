// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_facts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/kernel_file.h"
#include "net/kernel_folder.h"

namespace nccltune::net {
namespace {

class KernelFactsTest : public ::testing::Test {
 protected:
  KernelRoots Roots() const { return {.proc = folder_.root(), .cgroup = folder_.Path("cgroup")}; }

  KernelFolder folder_;
};

TEST_F(KernelFactsTest, LimitsAreRead) {
  folder_.Write("sys/net/core/optmem_max", "20480");
  folder_.Write("sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432");
  folder_.Write("sys/net/ipv4/tcp_wmem", "4096 16384 4194304");
  folder_.Write("sys/net/ipv4/tcp_congestion_control", "bbr");
  const KernelFacts facts = ReadKernelFacts(Roots());
  EXPECT_EQ(facts.optmem_max, 20480U);
  EXPECT_EQ(facts.tcp_rmem_max, 33554432U);
  EXPECT_EQ(facts.tcp_wmem_max, 4194304U);
  EXPECT_EQ(facts.congestion_control, "bbr");
  EXPECT_GE(facts.cpus, 1);
}

TEST_F(KernelFactsTest, WhatTheKernelDoesNotReportIsNotKnown) {
  folder_.Write("sys/net/ipv4/tcp_wmem", "much");
  folder_.Write("sys/net/ipv4/tcp_rmem", "");
  const KernelFacts facts = ReadKernelFacts(Roots());
  EXPECT_FALSE(facts.optmem_max.has_value());
  EXPECT_FALSE(facts.tcp_rmem_max.has_value());
  EXPECT_FALSE(facts.tcp_wmem_max.has_value());
  EXPECT_EQ(facts.congestion_control, "");
}

// Files in /proc have a size of 0.
TEST_F(KernelFactsTest, FilesOfTheKernelAreReadToTheirEnd) {
  const std::optional<std::string> status = ReadKernelFile("/proc/self/status");
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->rfind("Name:", 0), 0U);
  EXPECT_NE(status->find("Threads:"), std::string::npos);
  EXPECT_FALSE(ReadKernelFile(folder_.Path("nothing")).has_value());
  EXPECT_FALSE(ReadKernelFile(folder_.root()).has_value());
  folder_.Write("number", " 12 ");
  EXPECT_EQ(ReadKernelNumber(folder_.Path("number")), 12U);
  folder_.Write("number", "12 13");
  EXPECT_FALSE(ReadKernelNumber(folder_.Path("number")).has_value());
}

TEST(BytesText, KeepsEveryByte) {
  EXPECT_EQ(BytesText(0), "0");
  EXPECT_EQ(BytesText(1500), "1500");
  EXPECT_EQ(BytesText(212992), "208 KiB");
  EXPECT_EQ(BytesText(4 << 20), "4 MiB");
  EXPECT_EQ(BytesText(uint64_t{3} << 40U), "3072 GiB");
}

TEST(InitLine, ReportsWhatWasTakenAndWhatWasFound) {
  const std::vector<Nic> nics = {{.name = "eth0",
                                  .address = AddressOf("10.0.0.1"),
                                  .pci_path = "/sys/devices/pci0000:00/0000:3b:00.0",
                                  .driver = "gve",
                                  .speed_mbps = 200000,
                                  .mtu = 8896},
                                 {.name = "veth1",
                                  .address = AddressOf("fe80::1", 2),
                                  .pci_path = "",
                                  .driver = "",
                                  .speed_mbps = 10000,
                                  .mtu = 0}};
  const KernelFacts facts = {.optmem_max = 128U << 10U,
                             .tcp_rmem_max = 32U << 20U,
                             .tcp_wmem_max = 4U << 20U,
                             .congestion_control = "cubic",
                             .zero_copy = true,
                             .cpus = 26};
  EXPECT_EQ(InitLine(nics, facts, NetSettings(), 8, 6),
            "8 flows, 6 threads on 26 CPUs; congestion control cubic, tcp_rmem 32 MiB, tcp_wmem 4 "
            "MiB; zero copy auto, optmem_max 128 KiB; 2 NICs: eth0 "
            "10.0.0.1 200000 Mb/s MTU 8896 gve, veth1 fe80::1%2 10000 Mb/s");
}

TEST(InitLine, ReportsWhetherSendsAreTriedWithoutACopy) {
  const auto line = [](ZeroCopyMode mode, bool there) {
    NetSettings settings;
    settings.zero_copy = mode;
    KernelFacts facts;
    facts.zero_copy = there;
    return InitLine({}, facts, settings, 8, 6);
  };
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  EXPECT_TRUE(has(line(ZeroCopyMode::kAuto, true), "; zero copy auto, optmem_max unknown; "));
  EXPECT_TRUE(has(line(ZeroCopyMode::kAlways, true), "; zero copy always, optmem_max unknown; "));
  EXPECT_TRUE(has(line(ZeroCopyMode::kOff, true), "; zero copy off; "));
  EXPECT_TRUE(has(line(ZeroCopyMode::kAuto, false), "; zero copy not in this kernel; "));
}

TEST(InitLine, ReportsWhatIsNotKnown) {
  NetSettings settings;
  settings.ports = {.first = 50000, .last = 50999};
  KernelFacts facts;
  facts.cpus = 1;
  EXPECT_EQ(InitLine({}, facts, settings, 1, 1),
            "1 flow, 1 thread on 1 CPU, ports 50000-50999; congestion control unknown, tcp_rmem "
            "unknown, tcp_wmem unknown; zero copy not in this kernel; 0 NICs");
}

TEST(InitLine, NicsThatWouldMakeItTooLongAreCounted) {
  const Nic nic = {.name = "enp125s0f3np3",
                   .address = AddressOf("fe80::a236:9fff:fe12:3456", 12),
                   .pci_path = "",
                   .driver = "mlx5_core",
                   .speed_mbps = 400000,
                   .mtu = 9000};
  const std::vector<Nic> nics(16, nic);
  const std::string line = InitLine(nics, KernelFacts(), NetSettings(), 8, 6);
  EXPECT_LE(line.size(), kMostInitLine);
  EXPECT_NE(line.find("; 16 NICs: enp125s0f3np3 fe80::"), std::string::npos) << line;
  EXPECT_NE(line.find(" mlx5_core and 9 more"), std::string::npos) << line;
}

}  // namespace
}  // namespace nccltune::net
