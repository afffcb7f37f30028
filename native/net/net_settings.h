// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nccltune::net {

struct PortRange {
  uint16_t first = 0;  // 0: the kernel chooses a free port
  uint16_t last = 0;

  bool operator==(const PortRange&) const = default;
};

inline constexpr int kPathTimeoutMs = 60'000;

enum class ZeroCopyMode {
  kAuto,    // MSG_ZEROCOPY is tried on each flow and kept if the kernel does not copy
  kOff,     // NCCLTUNE_NET_ZEROCOPY=0
  kAlways,  // NCCLTUNE_NET_ZEROCOPY=1: used until the kernel refuses it
};

// The values of the NCCLTUNE_NET_* variables, read once for each communicator. A connection has one
// express flow for small messages and several bulk flows for large ones.
struct NetSettings {
  int flows = 0;                  // bulk flows of a connection; 0: derived from the pool's threads
  int threads = 0;                // pool threads; 0: derived from the process's CPUs
  size_t eager_bytes = 16 << 10;  // messages up to this size take the express flow
  int devices = 0;                // devices per NIC; 0: derived from the number of NICs
  int timeout_s = 600;            // a connection fails after this time without progress; 0: never
  // A flow (a TCP connection) is dead if the peer's kernel has owed an acknowledgement for this
  // long. The flow reconnects, so this limit is shorter than the connection's: the retransmissions
  // of an old socket come up to two minutes after an outage.
  int path_timeout_ms = kPathTimeoutMs;
  // A connection fails if no flow was up for this long and the peer's host does not answer; 0:
  // never.
  int down_timeout_s = 600;
  PortRange ports = {};  // for listening sockets
  ZeroCopyMode zero_copy = ZeroCopyMode::kAuto;
  uint64_t open_files = 65'536;  // RLIMIT_NOFILE is raised to this; 0: left unchanged
  // Per connection, for data received before its request is posted. Not a variable; tests use less.
  size_t stash_bytes = 256 << 20;

  bool operator==(const NetSettings&) const = default;
};

// Reads the settings. An invalid value adds a line to `warnings` and gives the default.
NetSettings ReadNetSettings(std::vector<std::string>* warnings);

}  // namespace nccltune::net
