// SPDX-License-Identifier: Apache-2.0
// The command line of nccltune-net-host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/net/content.h"

namespace nccltune::host::net {

enum class NetCheckMode { kTransfer, kThroughput, kIdle };

struct NetCheckOptions {
  NetCheckMode mode = NetCheckMode::kTransfer;
  bool help = false;

  std::string plugin;
  int interface = 0;  // version of the net interface; 0: the newest
  int device = 0;
  std::vector<int> members;  // members of a virtual device to create; empty: use `device`
  int traffic_class = -1;

  // Connection to the other process.
  bool fork = false;
  int rank = 0;
  std::string rendezvous;  // the path of a socket; empty with --fork

  // The messages.
  int connections = 1;
  bool both = true;  // true: both directions; false: only from rank 0 to rank 1
  Sizes sizes;
  uint64_t messages = 200;  // transfer: for each connection and direction
  int window = 8;
  uint64_t slack = 4096;  // bytes by which a receive may be larger than its message
  double seconds = 5;
  double warmup_seconds = 1;
  bool check = false;  // also check the bytes in throughput
  int rounds = 1;

  // Variations of the calls to the plugin.
  bool close_in_flight = false;
  int kill_after_ms = -1;
  int timeout_s = 60;
  bool log = false;
};

std::string_view ModeName(NetCheckMode mode);

// Parses the command line. Returns false with *error if the arguments are not valid.
bool ParseOptions(const std::vector<std::string_view>& arguments, NetCheckOptions* options,
                  std::string* error);

std::string_view HelpText();

}  // namespace nccltune::host::net
