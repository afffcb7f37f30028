// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_facts.h"
#include "net/kernel_folder.h"
#include "net/net_settings.h"
#include "testing.h"

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
  EXPECT_TRUE(Has(*status, "Threads:"));
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
  EXPECT_TRUE(Has(line(ZeroCopyMode::kAuto, true), "; zero copy auto, optmem_max unknown; "));
  EXPECT_TRUE(Has(line(ZeroCopyMode::kAlways, true), "; zero copy always, optmem_max unknown; "));
  EXPECT_TRUE(Has(line(ZeroCopyMode::kOff, true), "; zero copy off; "));
  EXPECT_TRUE(Has(line(ZeroCopyMode::kAuto, false), "; zero copy not in this kernel; "));
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
  EXPECT_TRUE(Has(line, "; 16 NICs: enp125s0f3np3 fe80::")) << line;
  EXPECT_TRUE(Has(line, " mlx5_core and 9 more")) << line;
}

TEST(PoolThreads, AreThreeOfFourCpusWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(PoolThreads(automatic, 1), 2);
  EXPECT_EQ(PoolThreads(automatic, 2), 2);
  EXPECT_EQ(PoolThreads(automatic, 4), 4);
  EXPECT_EQ(PoolThreads(automatic, 8), 6);
  EXPECT_EQ(PoolThreads(automatic, 26), 19);
  EXPECT_EQ(PoolThreads(automatic, 384), 24);
}

TEST(PoolThreads, AreWhatIsSet) {
  NetSettings settings;
  settings.threads = 1;
  EXPECT_EQ(PoolThreads(settings, 384), 1);
  settings.threads = 64;
  EXPECT_EQ(PoolThreads(settings), 64);
}

TEST(FlowsOf, AreHalfOfTheThreadsWithinBounds) {
  const NetSettings automatic;
  EXPECT_EQ(FlowsOf(automatic, 1), 2);
  EXPECT_EQ(FlowsOf(automatic, 4), 2);
  EXPECT_EQ(FlowsOf(automatic, 6), 3);
  EXPECT_EQ(FlowsOf(automatic, 16), 8);
  EXPECT_EQ(FlowsOf(automatic, 24), 8);
  NetSettings settings;
  settings.flows = 12;
  EXPECT_EQ(FlowsOf(settings, 2), 12);
}

TEST(DevicesOfNic, MakeFourOfAllNicsOnManyCpus) {
  EXPECT_EQ(DevicesOfNic(1, 8), 4);
  EXPECT_EQ(DevicesOfNic(2, 8), 2);
  EXPECT_EQ(DevicesOfNic(3, 8), 1);
  EXPECT_EQ(DevicesOfNic(9, 8), 1);
  EXPECT_EQ(DevicesOfNic(0, 8), 1);
  EXPECT_EQ(DevicesOfNic(1, 4), 1);
}

class UsableCpusTest : public ::testing::Test {
 protected:
  int Cpus(const CpuCounts& counts) const {
    return UsableCpus(counts, {.proc = folder_.Path("proc"), .cgroup = folder_.Path("cgroup")});
  }

  KernelFolder folder_;
};

// By the groups of a process with an affinity of 64 CPUs, and the quotas of version 2 (cpu.max) and
// of version 1, of 100 ms.
TEST_F(UsableCpusTest, AQuotaOfTheGroupLimitsThem) {
  struct Quotas {
    const char* groups;
    std::vector<std::pair<std::string, const char*>> quotas;  // by file
    int cpus;
  };
  const char* const pod = "0::/kubepods.slice/pod1/container";
  const char* const first = "5:cpuset:/a\n4:cpuacct,cpu:/docker/1234\n1:name=systemd:/x";
  const std::string max = "/cpu.max";
  const std::string us = "/cpu.cfs_quota_us";
  const std::vector<Quotas> cases = {
      {"", {}, 64},
      {"0::/user.slice", {}, 64},
      {"0::/user.slice", {{"/user.slice" + max, "max 100000"}}, 64},
      // It is rounded up.
      {"0::/job", {{"/job" + max, "400000 100000"}}, 4},
      {"0::/job", {{"/job" + max, "250000 100000"}}, 3},
      {"0::/job", {{"/job" + max, "1000 100000"}}, 1},
      // The smallest of the groups above counts.
      {pod,
       {{"/kubepods.slice/pod1" + max, "800000 100000"},
        {"/kubepods.slice/pod1/container" + max, "1600000 100000"}},
       8},
      {pod,
       {{"/kubepods.slice" + max, "200000 100000"},
        {"/kubepods.slice/pod1" + max, "800000 100000"}},
       2},
      // The group of a container is its root, also where the path is as the host sees it.
      {"0::/", {{max, "500000 100000"}}, 5},
      {"0::/system.slice/docker-1234.scope", {{max, "500000 100000"}}, 5},
      {"0::/../../other", {{max, "500000 100000"}}, 5},
      // A quota of version 1 is that of its CPU controller.
      {first, {{"/cpuacct,cpu/docker/1234" + us, "600000"}}, 6},
      {first, {{"/cpuacct,cpu/docker/1234" + us, "600000"}, {"/cpu/docker" + us, "300000"}}, 3},
      {first, {{"/cpuacct,cpu/docker/1234" + us, "600000"}, {"/cpu/docker" + us, "-1"}}, 6},
      {first, {{"/cpuset/a" + us, "100000"}}, 64},
      // Both versions may be mounted.
      {"1:cpu:/\n0::/job", {{"/unified/job" + max, "700000 100000"}}, 7},
      {"1:cpu:/\n0::/job", {{"/unified/job" + max, "700000 100000"}, {"/cpu" + us, "200000"}}, 2},
      // What cannot be read limits nothing.
      {"nonsense\n0:\n::\n0::\n0::job", {}, 64}};
  const auto expect = [](const Quotas& each) {
    const KernelFolder folder;
    folder.Write("proc/self/cgroup", each.groups);
    for (const auto& [file, quota] : each.quotas) {
      folder.Write("cgroup" + file, quota);
      if (!file.ends_with("quota_us")) continue;
      folder.Write("cgroup" + file.substr(0, file.rfind('/')) + "/cpu.cfs_period_us", "100000");
    }
    const KernelRoots roots = {.proc = folder.Path("proc"), .cgroup = folder.Path("cgroup")};
    for (const int affinity : {64, 2, 0}) {
      const CpuCounts counts = {.affinity = affinity, .online = 128, .local_ranks = 1};
      EXPECT_EQ(UsableCpus(counts, roots), std::max(std::min(each.cpus, affinity), 1))
          << each.groups;
    }
  };
  for (const Quotas& each : cases) expect(each);
  for (const char* const text : {"", "100000", "0 100000", "100000 0", "a b", "-5 100000"}) {
    expect({"0::/job", {{"/job" + max, text}}, 64});
  }
}

// NCCL's threads are bound to a few CPUs; the process is not.
TEST_F(UsableCpusTest, RanksOfAHostShareIt) {
  EXPECT_EQ(Cpus({.affinity = 128, .online = 128, .local_ranks = 8}), 16);
  // Each rank is bound to fewer CPUs.
  EXPECT_EQ(Cpus({.affinity = 12, .online = 128, .local_ranks = 8}), 12);
  EXPECT_EQ(Cpus({.affinity = 4, .online = 4, .local_ranks = 8}), 1);
  EXPECT_EQ(Cpus({.affinity = 4, .online = 4, .local_ranks = 0}), 4);
}

TEST_F(UsableCpusTest, RanksOfAContainerShareItsCpusetAndItsQuota) {
  folder_.Write("proc/self/cgroup", "0::/");
  folder_.Write("cgroup/cpuset.cpus.effective", "0-15,64-79");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 8);
  folder_.Write("cgroup/cpu.max", "1600000 100000");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 4);
  folder_.Write("cgroup/cpuset.cpus.effective", "none");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 4);
}

TEST_F(UsableCpusTest, ACpusetOfVersion1Counts) {
  folder_.Write("proc/self/cgroup", "3:cpuset:/docker/a\n2:cpu,cpuacct:/docker/a");
  folder_.Write("cgroup/cpuset/cpuset.effective_cpus", "2,4-6");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 2}), 2);
}

class LocalRanksTest : public ::testing::Test {
 protected:
  static constexpr std::array<const char*, 3> kVariables = {
      "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"};
  void SetUp() override { TearDown(); }
  void TearDown() override {
    for (const char* const variable : kVariables) unsetenv(variable);
  }
};

TEST_F(LocalRanksTest, AreTakenFromTheLauncher) {
  EXPECT_EQ(LocalRanks(), 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  EXPECT_EQ(LocalRanks(), 4);
  // One task of Slurm starts eight ranks.
  setenv("SLURM_STEP_TASKS_PER_NODE", "1(x2)", 1);
  setenv("LOCAL_WORLD_SIZE", "8", 1);
  EXPECT_EQ(LocalRanks(), 8);
}

TEST_F(LocalRanksTest, OfSlurmAreThoseOfTheFullestNode) {
  setenv("SLURM_STEP_TASKS_PER_NODE", "2,8(x3),4", 1);
  EXPECT_EQ(LocalRanks(), 8);
  setenv("SLURM_STEP_TASKS_PER_NODE", "many", 1);
  EXPECT_EQ(LocalRanks(), 1);
  setenv("LOCAL_WORLD_SIZE", "0", 1);
  EXPECT_EQ(LocalRanks(), 1);
}

TEST_F(UsableCpusTest, TheAffinityIsThatOfTheProcess) {
  const KernelRoots empty = {.proc = folder_.Path("proc"), .cgroup = folder_.Path("cgroup")};
  const int all = UsableCpus(empty);
  EXPECT_GE(all, 1);
  int bound = 0;
  std::thread([&] {
    cpu_set_t mine;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mine) && CPU_COUNT(&one) == 0) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    bound = UsableCpus(empty);
  }).join();
  EXPECT_EQ(bound, all);
}

TEST(NetSettings, WithoutVariablesTheyAreTheDefaultsOfTheirStruct) {
  std::vector<std::string> warnings;
  const NetSettings read = ReadNetSettings(&warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(read == NetSettings());
}

// Variables without their prefix NCCLTUNE_NET_.
using Values = std::initializer_list<std::pair<const char*, const char*>>;

NetSettings ReadFrom(const Values& values, std::vector<std::string>* warnings) {
  ScopedVariables variables;
  for (const auto& [name, value] : values) {
    variables.Set(std::string("NCCLTUNE_NET_") + name, value);
  }
  return ReadNetSettings(warnings);
}

TEST(NetSettings, EachIsReadFromItsVariable) {
  std::vector<std::string> warnings;
  const NetSettings read = ReadFrom({{"FLOWS", "12"},
                                     {"THREADS", "3"},
                                     {"EAGER", "0"},
                                     {"DEVICES", "3"},
                                     {"TIMEOUT", "30"},
                                     {"PATH_TIMEOUT", "7"},
                                     {"DOWN_TIMEOUT", "900"},
                                     {"PORTS", "50000-65535"},
                                     {"NOFILE", "0"}},
                                    &warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_TRUE(read == (NetSettings{.flows = 12,
                                   .threads = 3,
                                   .eager_bytes = 0,
                                   .devices = 3,
                                   .timeout_s = 30,
                                   .path_timeout_ms = 7000,
                                   .down_timeout_s = 900,
                                   .ports = {50000, 65535},
                                   .open_files = 0}));
}

TEST(NetSettings, EveryBadValueIsNamedAndItsDefaultTaken) {
  std::vector<std::string> warnings;
  const NetSettings read = ReadFrom({{"FLOWS", "65"},
                                     {"THREADS", "none"},
                                     {"EAGER", "2M"},
                                     {"DEVICES", "9"},
                                     {"TIMEOUT", "10s"},
                                     {"PORTS", "50000"},
                                     {"ZEROCOPY", "yes"},
                                     {"NOFILE", "1048577"}},
                                    &warnings);
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
  EXPECT_TRUE(read == NetSettings());
}

TEST(NetSettings, LimitsOfAnOutageFollowTheTimeoutOfTheConnection) {
  const std::tuple<const char*, int, int> cases[] = {{"600", 60'000, 600},
                                                     {"1800", 60'000, 1800},
                                                     {"120", 12'000, 120},
                                                     {"5", 1000, 5},
                                                     {"0", 60'000, 0}};
  for (const auto& [timeout, path_ms, down_s] : cases) {
    std::vector<std::string> warnings;
    const NetSettings read = ReadFrom({{"TIMEOUT", timeout}}, &warnings);
    EXPECT_EQ(read.path_timeout_ms, path_ms) << timeout;
    EXPECT_EQ(read.down_timeout_s, down_s) << timeout;
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
