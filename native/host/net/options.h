// SPDX-License-Identifier: Apache-2.0
// The command line of nccltune-net-host.
#ifndef NCCLTUNE_HOST_NET_OPTIONS_H_
#define NCCLTUNE_HOST_NET_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/net/content.h"

namespace nccltune::host::net {

enum class Mode { kTransfer, kPingPong, kThroughput, kIdle };

struct Options {
  Mode mode = Mode::kTransfer;
  bool help = false;
  bool list_symbols = false;

  std::string plugin;
  int interface = 0;  // 0: the newest
  int device = 0;
  std::vector<int> members;  // of a device to make; empty: take `device`
  int communicators = 1;
  int traffic_class = -1;

  // How the other process is met.
  bool fork = false;
  int rank = 0;
  std::string rendezvous;  // a port of 127.0.0.1, or a path of a socket; empty: by fork

  // What is moved.
  int connections = 1;
  bool both = true;  // directions; else from rank 0 to rank 1
  Sizes sizes;
  std::string sizes_text;
  uint64_t messages = 200;  // transfer: of each connection and direction; pingpong: of each size
  int window = 8;
  uint64_t slack = 4096;  // how much larger a receive may be than its message
  uint64_t slice = 1 << 20;
  double seconds = 5;
  double warmup_seconds = 1;
  bool check = false;  // bytes in pingpong and throughput too
  uint64_t seed = 1;
  uint64_t memory = uint64_t{2} << 30;  // for the buffers of a process
  int rounds = 1;

  // How it is called.
  bool random_order = false;
  bool optional_completion = false;
  bool nulls = false;
  bool no_sizes = false;
  bool one_service_thread = false;
  int idle_listens = 0;
  int connect_delay_ms = 0;
  int accept_delay_ms = 0;
  bool close_in_flight = false;
  int kill_after_ms = -1;
  int stop_after_ms = -1;
  int continue_after_ms = -1;  // after the stop
  int timeout_s = 60;
  bool log = false;
};

// Round trips of each size that are not counted.
inline uint64_t WarmUpTrips(const Options& options) { return 10 + options.messages / 10; }

// Whether the two meet at a socket in the file system.
bool IsPath(std::string_view rendezvous);

std::string_view ModeName(Mode mode);

// False and *error in words if the arguments are not valid.
bool ParseOptions(const std::vector<std::string_view>& arguments, Options* options,
                  std::string* error);

std::string_view HelpText();

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_OPTIONS_H_
