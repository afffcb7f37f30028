// SPDX-License-Identifier: Apache-2.0
#include "net/pool_size.h"

#include <algorithm>

#include "net/kernel_facts.h"

namespace nccltune::net {
namespace {

constexpr int kFewestThreads = 2;
constexpr int kMostThreads = 24;
constexpr int kFewestFlows = 2;
constexpr int kMostFlows = 8;

}  // namespace

int PoolThreads(const NetSettings& settings, int cpus) {
  if (settings.threads != 0) return settings.threads;
  return std::clamp(3 * cpus / 4, kFewestThreads, kMostThreads);
}

int PoolThreads(const NetSettings& settings) {
  // Asked at every look for a peer; the kernel's files are read once.
  static const int cpus = UsableCpus();
  return PoolThreads(settings, cpus);
}

int FlowsOf(const NetSettings& settings, int threads) {
  if (settings.flows != 0) return settings.flows;
  return std::clamp(threads, kFewestFlows, kMostFlows);
}

}  // namespace nccltune::net
