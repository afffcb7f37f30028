// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_NET_SETTINGS_H_
#define NCCLTUNE_NET_NET_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nccltune::net {

struct PortRange {
  uint16_t first = 0;  // 0: any free port
  uint16_t last = 0;
};

enum class ZeroCopyMode {
  kAuto,    // tried on each flow, kept where the kernel does not copy
  kOff,     // 0
  kAlways,  // 1: as long as the kernel takes it
};

// The NCCLTUNE_NET_* variables of common/settings.h, read once for each communicator.
struct NetSettings {
  int flows = 0;                  // bulk flows of a connection; 0: by the pool's threads
  int threads = 0;                // of the pool; 0: by the CPUs of the process
  size_t eager_bytes = 16 << 10;  // messages up to this size always take the express flow
  int devices = 0;                // that NCCL sees of each NIC; 0: by the number of NICs
  int timeout_s = 600;            // without progress; 0: none
  PortRange ports;                // where listeners listen
  ZeroCopyMode zero_copy = ZeroCopyMode::kAuto;
};

// What is not valid is named in `warnings`, and its default is taken.
NetSettings ReadNetSettings(std::vector<std::string>* warnings);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_NET_SETTINGS_H_
