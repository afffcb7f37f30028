// SPDX-License-Identifier: Apache-2.0
// Limits of this host for the speed of TCP, and the CPUs that this process may use.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/device_table.h"
#include "net/net_settings.h"

namespace nccltune::net {

// Returns the content of a file of /proc or /sys without trailing newlines, at most 64 KiB. Returns
// nothing if reading fails. ReadFile of common/file.h trusts the size that the kernel reports,
// which is 0 or 4096 for such files, so it does not suit them.
std::optional<std::string> ReadKernelFile(const std::string& path);

// Returns the number in the file. Returns nothing if reading fails or the content is not an
// unsigned number.
std::optional<uint64_t> ReadKernelNumber(const std::string& path);

// The directories of the kernel's files. Tests use other directories.
struct KernelRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// Kernel limits in bytes; empty if unknown. rmem_max and wmem_max of net.core are not included:
// they limit only programs that set a buffer size, and we set none.
struct KernelFacts {
  std::optional<uint64_t> optmem_max;  // net.core: limits MSG_ZEROCOPY reports per socket
  std::optional<uint64_t>
      tcp_rmem_max;  // net.ipv4: limit of a receive buffer that the kernel sizes
  std::optional<uint64_t> tcp_wmem_max;
  std::string congestion_control;  // empty if unknown
  bool zero_copy = false;          // result of KernelHasZeroCopy
  int cpus = 0;                    // result of UsableCpus
};

KernelFacts ReadKernelFacts(const KernelRoots& roots = {});

// Counts of CPUs and ranks that limit what one process may use.
struct CpuCounts {
  int affinity = 1;     // CPUs of the process's first thread; NCCL binds its own threads near a GPU
  int online = 1;       // CPUs of the host
  int local_ranks = 1;  // ranks of the job on this host
};

// Returns the number of CPUs that this process may use, at least 1. The number is the smaller of
// two limits. The first limit is the number of CPUs in the process's affinity. The second limit is
// shared by all ranks on this host, so it is divided by their number. It is the smallest of: the
// host's CPUs, the cpuset of the process's cgroup, and the CPU quotas of that cgroup. Limits of
// parent cgroups count too. Cgroups may be of version 1 or 2, and quotas are rounded up.
int UsableCpus(const KernelRoots& roots = {});
int UsableCpus(const CpuCounts& counts, const KernelRoots& roots);

// A set of CPUs in the format of sched_getaffinity, long enough for this host.
using CpuSet = std::vector<cpu_set_t>;
// Returns the CPUs that a thread may run on (0: the calling thread), or an empty set if the kernel
// call fails.
CpuSet CpusOfThread(pid_t thread);

// Returns the number of ranks on this host from the launcher's variables (torchrun, Open MPI, MPICH
// and Intel MPI, MVAPICH, Slurm). Returns the largest number if several are set, and 1 if none is
// set.
int LocalRanks();

// Returns a number of bytes as text without rounding: "0", "1500", "64 KiB", "4 MiB".
std::string BytesText(uint64_t bytes);

// Limit of the log line's length. NCCL cuts log lines at 1024 characters, including NCCL's prefix.
inline constexpr size_t kMostInitLine = 700;
// Returns the log line at init: the settings in use and the host's limits. The line has at most
// kMostInitLine characters; NICs that do not fit are only counted.
std::string InitLine(std::span<const Nic> nics, const KernelFacts& facts,
                     const NetSettings& settings, int flows, int threads);

// Derives the numbers of threads, flows and devices from the process's CPUs, for settings with the
// value "auto".

// Returns the number of threads of the pool: the setting, or 2 to 24 depending on `cpus`.
int PoolThreads(const NetSettings& settings, int cpus);
// Same, with the result of UsableCpus as `cpus`. UsableCpus is called only once.
int PoolThreads(const NetSettings& settings);

// Returns the number of bulk flows of a connection (TCP connections for large messages): the
// setting, or half of the threads, 2 to 8.
int FlowsOf(const NetSettings& settings, int threads);

// Return the number of devices per NIC for a host with `nics` NICs. The user's setting is not
// considered. Without `cpus`, the result of UsableCpus is used.
int DevicesOfNic(size_t nics, int cpus);
int DevicesOfNic(size_t nics);

}  // namespace nccltune::net
