// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>

#include "net/kernel_facts.h"
#include "net/kernel_folder.h"

namespace nccltune::net {
namespace {

class UsableCpusTest : public ::testing::Test {
 protected:
  // Returns the usable CPUs of a process with this affinity.
  int Cpus(int affinity = 64) const {
    return Cpus({.affinity = affinity, .online = 128, .local_ranks = 1});
  }
  int Cpus(const CpuCounts& counts) const {
    return UsableCpus(counts, {.proc = folder_.Path("proc"), .cgroup = folder_.Path("cgroup")});
  }
  void Groups(const std::string& lines) const { folder_.Write("proc/self/cgroup", lines); }
  void Max(const std::string& group, const std::string& text) const {
    folder_.Write("cgroup" + group + "/cpu.max", text);
  }
  void Quota(const std::string& group, const std::string& quota) const {
    folder_.Write("cgroup" + group + "/cpu.cfs_quota_us", quota);
    folder_.Write("cgroup" + group + "/cpu.cfs_period_us", "100000");
  }

  KernelFolder folder_;
};

TEST_F(UsableCpusTest, WithoutAQuotaTheAffinityCounts) {
  EXPECT_EQ(Cpus(), 64);
  Groups("0::/user.slice");
  EXPECT_EQ(Cpus(), 64);
  Max("/user.slice", "max 100000");
  EXPECT_EQ(Cpus(), 64);
  EXPECT_EQ(Cpus(3), 3);
}

TEST_F(UsableCpusTest, AQuotaOfVersion2IsRoundedUp) {
  Groups("0::/job");
  Max("/job", "400000 100000");
  EXPECT_EQ(Cpus(), 4);
  EXPECT_EQ(Cpus(2), 2);
  Max("/job", "250000 100000");
  EXPECT_EQ(Cpus(), 3);
  Max("/job", "1000 100000");
  EXPECT_EQ(Cpus(), 1);
}

TEST_F(UsableCpusTest, TheSmallestOfTheGroupsAboveCounts) {
  Groups("0::/kubepods.slice/pod1/container");
  Max("/kubepods.slice/pod1", "800000 100000");
  Max("/kubepods.slice/pod1/container", "1600000 100000");
  EXPECT_EQ(Cpus(), 8);
  Max("/kubepods.slice", "200000 100000");
  EXPECT_EQ(Cpus(), 2);
}

TEST_F(UsableCpusTest, TheGroupOfAContainerIsItsRoot) {
  Max("", "500000 100000");
  Groups("0::/");
  EXPECT_EQ(Cpus(), 5);
  // The path as the host sees it.
  Groups("0::/system.slice/docker-1234.scope");
  EXPECT_EQ(Cpus(), 5);
  Groups("0::/../../other");
  EXPECT_EQ(Cpus(), 5);
}

TEST_F(UsableCpusTest, AQuotaOfVersion1IsThatOfItsCpuController) {
  Groups("5:cpuset:/a\n4:cpuacct,cpu:/docker/1234\n1:name=systemd:/x");
  Quota("/cpuacct,cpu/docker/1234", "600000");
  EXPECT_EQ(Cpus(), 6);
  Quota("/cpu/docker", "300000");
  EXPECT_EQ(Cpus(), 3);
  Quota("/cpu/docker", "-1");
  EXPECT_EQ(Cpus(), 6);
  // Not a CPU quota.
  Quota("/cpuset/a", "100000");
  EXPECT_EQ(Cpus(), 6);
}

TEST_F(UsableCpusTest, BothVersionsMayBeMounted) {
  Groups("1:cpu:/\n0::/job");
  Max("/unified/job", "700000 100000");
  EXPECT_EQ(Cpus(), 7);
  Quota("/cpu", "200000");
  EXPECT_EQ(Cpus(), 2);
}

TEST_F(UsableCpusTest, WhatCannotBeReadLimitsNothing) {
  Groups("nonsense\n0:\n::\n0::\n0::job");
  EXPECT_EQ(Cpus(), 64);
  Groups("0::/job");
  for (const char* const text : {"", "100000", "0 100000", "100000 0", "a b", "-5 100000"}) {
    Max("/job", text);
    EXPECT_EQ(Cpus(), 64) << text;
  }
  EXPECT_EQ(Cpus(0), 1);
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
  Groups("0::/");
  folder_.Write("cgroup/cpuset.cpus.effective", "0-15,64-79");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 8);
  Max("", "1600000 100000");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 4);
  folder_.Write("cgroup/cpuset.cpus.effective", "none");
  EXPECT_EQ(Cpus({.affinity = 32, .online = 128, .local_ranks = 4}), 4);
}

TEST_F(UsableCpusTest, ACpusetOfVersion1Counts) {
  Groups("3:cpuset:/docker/a\n2:cpu,cpuacct:/docker/a");
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

}  // namespace
}  // namespace nccltune::net
