// SPDX-License-Identifier: Apache-2.0
//
// Limits of this host that decide how fast TCP can be, and the CPUs that there are for it.
#ifndef NCCLTUNE_NET_KERNEL_FACTS_H_
#define NCCLTUNE_NET_KERNEL_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "net/device.h"
#include "net/net_settings.h"

namespace nccltune::net {

// Where the kernel's files are; tests give folders of their own.
struct KernelRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// Bytes. Empty: the kernel does not say. Not net.core's rmem_max and wmem_max: those bound what a
// program asks for, and we ask for nothing.
struct KernelFacts {
  std::optional<uint64_t> optmem_max;    // net.core: reports of sends without a copy, of a socket
  std::optional<uint64_t> tcp_rmem_max;  // net.ipv4: how far a socket grows by itself
  std::optional<uint64_t> tcp_wmem_max;
  std::string congestion_control;  // empty: the kernel does not say
  bool zero_copy = false;          // KernelHasZeroCopy
  int cpus = 0;                    // UsableCpus
};

KernelFacts ReadKernelFacts(const KernelRoots& roots = {});

// CPUs that this process may use: the affinity of its first thread (NCCL binds its own threads
// to the CPUs near a GPU) and the quotas of its cgroup, version 1 or 2, and of those above it,
// rounded up. At least 1.
int UsableCpus(const KernelRoots& roots = {});
int UsableCpus(int affinity, const KernelRoots& roots);

// 0, 1500, 64 KiB, 4 MiB
std::string BytesText(uint64_t bytes);

// What the log says at init: what was taken, what was found. At most kMostInitLine characters: NICs
// that would make it longer are counted only. NCCL cuts a line at 1024, its own words counted.
inline constexpr size_t kMostInitLine = 700;
std::string InitLine(std::span<const Nic> nics, const KernelFacts& facts,
                     const NetSettings& settings, int flows, int threads);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_KERNEL_FACTS_H_
