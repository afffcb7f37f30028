// SPDX-License-Identifier: Apache-2.0
#include "net/pool_size.h"

#include <algorithm>

#include "net/kernel_facts.h"

namespace nccltune::net {
namespace {

constexpr int kFewestThreads = 2;
constexpr int kMostThreads = 24;
constexpr int kFewestBulkFlows = 2;
constexpr int kMostBulkFlows = 8;

// NCCL's progress thread and the application's main thread often poll, and each takes one CPU. With
// at most kOneChannelPairCpus CPUs, a NIC is one device. With at most kTwoThreadCpus CPUs, the pool
// has two threads. More devices (which bring more channels) or more threads would only compete for
// CPUs (benchmarks/results/net-cores.md).
constexpr int kOneChannelPairCpus = 5;
constexpr int kTwoThreadCpus = 3;
constexpr int kFewCpuThreads = 4;

// NCCL makes two channels for each device, and eight channels are enough for TCP.
constexpr size_t kDevices = 4;

int ProcessCpus() {
  // Read the kernel's files only once: the function is called for each connection.
  static const int cpus = UsableCpus();
  return cpus;
}

}  // namespace

int PoolThreads(const NetSettings& settings, int cpus) {
  if (settings.threads != 0) return settings.threads;
  if (cpus <= kTwoThreadCpus) return kFewestThreads;
  return std::clamp(3 * cpus / 4, kFewCpuThreads, kMostThreads);
}

int PoolThreads(const NetSettings& settings) { return PoolThreads(settings, ProcessCpus()); }

int FlowsOf(const NetSettings& settings, int threads) {
  if (settings.flows != 0) return settings.flows;
  return std::clamp(threads / 2, kFewestBulkFlows, kMostBulkFlows);
}

int DevicesOfNic(size_t nics, int cpus) {
  if (nics == 0 || cpus <= kOneChannelPairCpus) return 1;
  return std::max(static_cast<int>(kDevices / nics), 1);
}

int DevicesOfNic(size_t nics) { return DevicesOfNic(nics, ProcessCpus()); }

}  // namespace nccltune::net
