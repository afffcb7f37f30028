// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "common/text.h"
#include "net/kernel_facts.h"

namespace nccltune::net {
namespace {

constexpr uint64_t kMostCpus = 1U << 16U;

// Returns the number of CPUs that equal `quota` microseconds of CPU time in each `period`
// microseconds, rounded up. Returns INT_MAX (no limit) if a number is missing or 0.
int CpusOf(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return INT_MAX;
  const uint64_t cpus = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return cpus > INT_MAX ? INT_MAX : static_cast<int>(cpus);
}

// Returns the CPU quota of a cgroup of version 2. The file has the form "250000 100000", or "max
// 100000" for no limit.
int CpuMax(const std::string& folder) {
  const std::string text = ReadKernelFile(folder + "/cpu.max").value_or("");
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return INT_MAX;
  const std::string_view line = text;
  return CpusOf(ParseUnsigned(line.substr(0, blank)), ParseUnsigned(line.substr(blank + 1)));
}

// Returns the CPU quota of a cgroup of version 1. The value -1 means no limit; ReadKernelNumber
// returns nothing for it.
int CfsQuota(const std::string& folder) {
  return CpusOf(ReadKernelNumber(folder + "/cpu.cfs_quota_us"),
                ReadKernelNumber(folder + "/cpu.cfs_period_us"));
}

// Returns the smallest value for the cgroup `path` and all cgroups above it, up to `root`. In a
// container, `path` may be the host's path while `root` is the container's own cgroup. Cgroups that
// do not exist limit nothing.
template <typename Quota>
int SmallestAbove(const std::string& root, std::string_view path, Quota quota) {
  // ".." in the path means a cgroup outside of our cgroup namespace. Then only `root` is read.
  if (!path.starts_with('/') || path.find("/..") != std::string_view::npos) path = "/";
  int smallest = quota(root);
  while (path.size() > 1) {
    smallest = std::min(smallest, quota(root + std::string(path)));
    path = path.substr(0, path.rfind('/'));
  }
  return smallest;
}

bool HasController(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == controller) return true;
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return false;
}

// Returns the number of CPUs in a list such as "0-3,8" (five). Returns INT_MAX (no limit) if the
// text is empty or is not a list.
int CpusOfList(std::string_view list) {
  int cpus = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view range = list.substr(0, comma);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    const size_t dash = range.find('-');
    const std::optional<uint64_t> first = ParseUnsigned(range.substr(0, dash));
    const std::optional<uint64_t> last =
        dash == std::string_view::npos ? first : ParseUnsigned(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last > kMostCpus) return INT_MAX;
    cpus += static_cast<int>(*last - *first) + 1;
  }
  return cpus == 0 ? INT_MAX : cpus;
}

int Cpuset(const std::string& folder) {
  for (const char* const name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus"}) {
    const std::optional<std::string> list = ReadKernelFile(folder + name);
    if (list) return CpusOfList(*list);
  }
  return INT_MAX;
}

// One line of /proc/self/cgroup: number:controllers:path. Version 2 has no controllers.
struct CgroupLine {
  std::string_view controllers;
  std::string_view path;
};

std::optional<CgroupLine> ParseCgroupLine(std::string_view line) {
  const size_t first = line.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const size_t second = line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  return CgroupLine{.controllers = line.substr(first + 1, second - first - 1),
                    .path = line.substr(second + 1)};
}

int QuotaOf(const CgroupLine& line, const std::string& root) {
  if (line.controllers.empty()) {
    // On hosts with both cgroup versions, version 2 is mounted at "unified".
    return std::min(SmallestAbove(root, line.path, CpuMax),
                    SmallestAbove(root + "/unified", line.path, CpuMax));
  }
  if (!HasController(line.controllers, "cpu")) return INT_MAX;
  return std::min(SmallestAbove(root + "/" + std::string(line.controllers), line.path, CfsQuota),
                  SmallestAbove(root + "/cpu", line.path, CfsQuota));
}

int CpusetOf(const CgroupLine& line, const std::string& root) {
  if (line.controllers.empty()) return SmallestAbove(root, line.path, Cpuset);
  if (!HasController(line.controllers, "cpuset")) return INT_MAX;
  return SmallestAbove(root + "/cpuset", line.path, Cpuset);
}

// Parses "8" or Slurm's list of ranks per node, "8(x2),4". Returns the largest number, or 0 if the
// text is not valid.
int MostRanks(std::string_view text) {
  int most = 0;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view entry = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    entry = entry.substr(0, entry.find('('));
    const std::optional<uint64_t> ranks = ParseUnsigned(entry);
    if (!ranks || *ranks == 0 || *ranks > kMostCpus) return 0;
    most = std::max(most, static_cast<int>(*ranks));
  }
  return most;
}

int AffinityCpus() {
  const CpuSet set = CpusOfThread(getpid());
  if (set.empty()) return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return CPU_COUNT_S(set.size() * sizeof(cpu_set_t), set.data());
}

}  // namespace

CpuSet CpusOfThread(pid_t thread) {
  // Hosts with more than 1024 CPUs need a larger set.
  for (size_t cpus = CPU_SETSIZE; cpus <= kMostCpus; cpus *= 2) {
    CpuSet set(cpus / CPU_SETSIZE);
    if (sched_getaffinity(thread, set.size() * sizeof(cpu_set_t), set.data()) == 0) return set;
  }
  return {};
}

int LocalRanks() {
  constexpr std::array<const char*, 5> kVariables = {
      "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
      "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"};
  int most = 1;
  for (const char* const variable : kVariables) {
    const char* const value = std::getenv(variable);
    if (value != nullptr) most = std::max(most, MostRanks(value));
  }
  return most;
}

int UsableCpus(const KernelRoots& roots) {
  return UsableCpus({.affinity = AffinityCpus(),
                     .online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
                     .local_ranks = LocalRanks()},
                    roots);
}

int UsableCpus(const CpuCounts& counts, const KernelRoots& roots) {
  int quota = INT_MAX;
  int host = counts.online;
  const std::string groups = ReadKernelFile(roots.proc + "/self/cgroup").value_or("");
  for (std::string_view rest = groups; !rest.empty();) {
    const size_t end = rest.find('\n');
    if (const auto line = ParseCgroupLine(rest.substr(0, end))) {
      quota = std::min(quota, QuotaOf(*line, roots.cgroup));
      host = std::min(host, CpusetOf(*line, roots.cgroup));
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  const int ranks = std::max(counts.local_ranks, 1);
  const int shared = std::min(host, quota) / ranks;
  return std::max(std::min(counts.affinity, shared), 1);
}

}  // namespace nccltune::net
