// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text.h"
#include "net/kernel_facts.h"
#include "net/kernel_file.h"

namespace nccltune::net {
namespace {

// CPUs that `quota` microseconds of `period` are; none of both is no limit.
int CpusOf(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return INT_MAX;
  const uint64_t cpus = *quota / *period + (*quota % *period != 0 ? 1 : 0);
  return cpus > INT_MAX ? INT_MAX : static_cast<int>(cpus);
}

// Version 2: "max 100000", "250000 100000".
int CpuMax(const std::string& folder) {
  const std::string text = ReadKernelFile(folder + "/cpu.max").value_or("");
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return INT_MAX;
  const std::string_view line = text;
  return CpusOf(ParseUnsigned(line.substr(0, blank)), ParseUnsigned(line.substr(blank + 1)));
}

// Version 1: -1 is no limit, and not an unsigned number.
int CfsQuota(const std::string& folder) {
  return CpusOf(ReadKernelNumber(folder + "/cpu.cfs_quota_us"),
                ReadKernelNumber(folder + "/cpu.cfs_period_us"));
}

// The smallest over `path` and all above it. In a container the path may be that of the host while
// `root` is the container's own group: what is not there limits nothing.
template <typename Quota>
int SmallestAbove(const std::string& root, std::string_view path, Quota quota) {
  // ".." is a group outside of the cgroup namespace that asks.
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

// One line of /proc/self/cgroup: number:controllers:path, without controllers for version 2.
int LineQuota(std::string_view line, const std::string& root) {
  const size_t first = line.find(':');
  if (first == std::string_view::npos) return INT_MAX;
  const size_t second = line.find(':', first + 1);
  if (second == std::string_view::npos) return INT_MAX;
  const std::string_view controllers = line.substr(first + 1, second - first - 1);
  const std::string_view path = line.substr(second + 1);
  if (controllers.empty()) {
    // The second place is where both versions are mounted.
    return std::min(SmallestAbove(root, path, CpuMax),
                    SmallestAbove(root + "/unified", path, CpuMax));
  }
  if (!HasController(controllers, "cpu")) return INT_MAX;
  return std::min(SmallestAbove(root + "/" + std::string(controllers), path, CfsQuota),
                  SmallestAbove(root + "/cpu", path, CfsQuota));
}

int AffinityCpus() {
  // Hosts with more than 1024 CPUs need a larger set.
  for (size_t cpus = CPU_SETSIZE; cpus <= (1U << 16U); cpus *= 2) {
    std::vector<cpu_set_t> set(cpus / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(getpid(), bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
  }
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

int UsableCpus(const KernelRoots& roots) { return UsableCpus(AffinityCpus(), roots); }

int UsableCpus(int affinity, const KernelRoots& roots) {
  int cpus = affinity;
  const std::string groups = ReadKernelFile(roots.proc + "/self/cgroup").value_or("");
  for (std::string_view rest = groups; !rest.empty();) {
    const size_t end = rest.find('\n');
    cpus = std::min(cpus, LineQuota(rest.substr(0, end), roots.cgroup));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return std::max(cpus, 1);
}

}  // namespace nccltune::net
