// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <thread>

#include "net/kernel_facts.h"
#include "net/kernel_folder.h"

namespace nccltune::net {
namespace {

class UsableCpusTest : public ::testing::Test {
 protected:
  // With a process that may run on 64 CPUs.
  int Cpus(int affinity = 64) const {
    return UsableCpus(affinity, {.proc = folder_.Path("proc"), .cgroup = folder_.Path("cgroup")});
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
  // Named as the host sees it.
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
  // No quota of the CPU.
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
