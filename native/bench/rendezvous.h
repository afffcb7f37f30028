// SPDX-License-Identifier: Apache-2.0
//
// Connects the processes of a run: process 0 listens, and the others connect to it. Connections
// from other programs are closed without affecting the run.
#ifndef NCCLTUNE_BENCH_RENDEZVOUS_H_
#define NCCLTUNE_BENCH_RENDEZVOUS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/backend.h"
#include "bench/endpoint.h"
#include "bench/wire.h"
#include "common/token.h"

namespace nccltune::bench {

struct RendezvousConfig {
  Endpoint endpoint;
  Token token{};
  World world;
  std::chrono::milliseconds limit{std::chrono::seconds(120)};
  int interrupt = -1;  // a descriptor; when it becomes readable, the rendezvous is cancelled
};

struct RendezvousError {
  enum class Kind {
    kBadInput,        // the processes were started with invalid or contradicting options
    kMissingProcess,  // a process did not connect in time, or disconnected
    kInterrupted,     // `interrupt` became readable
  };
  Kind kind = Kind::kMissingProcess;
  std::string text;
  std::string hint;
};

// Waits in process 0 until all other processes have connected. (*wires)[i] is the connection to
// process i + 1. Returns nullopt on success.
std::optional<RendezvousError> HostRendezvous(const RendezvousConfig& config,
                                              std::vector<Wire>* wires);

// Connects to process 0; called in the other processes. *wire is the connection. Returns nullopt on
// success.
std::optional<RendezvousError> JoinRendezvous(const RendezvousConfig& config,
                                              std::optional<Wire>* wire);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_RENDEZVOUS_H_
