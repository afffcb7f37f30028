// SPDX-License-Identifier: Apache-2.0
//
// How the processes of a run find each other: process 0 listens, the others connect. Whatever else
// connects is sent away and disturbs nobody.
#ifndef NCCLTUNE_BENCH_RENDEZVOUS_H_
#define NCCLTUNE_BENCH_RENDEZVOUS_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/endpoint.h"
#include "bench/token.h"
#include "bench/wire.h"
#include "bench/world.h"

namespace nccltune::bench {

struct Meeting {
  Endpoint endpoint;
  Token token{};
  World world;
  std::chrono::milliseconds limit{std::chrono::seconds(120)};
  int interrupt = -1;  // a descriptor; the meeting is off when it can be read
};

struct MeetingFailure {
  enum class Kind {
    kBadInput,     // what the processes were started with
    kNobody,       // somebody did not come, or went
    kInterrupted,  // by `interrupt`
  };
  Kind kind = Kind::kNobody;
  std::string text;
  std::string hint;
};

// For process 0. (*wires)[i] is the connection to process i + 1.
std::optional<MeetingFailure> Host(const Meeting& meeting, std::vector<Wire>* wires);

// For the others. *wire is the connection to process 0.
std::optional<MeetingFailure> Join(const Meeting& meeting, std::optional<Wire>* wire);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_RENDEZVOUS_H_
