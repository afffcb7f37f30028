// SPDX-License-Identifier: Apache-2.0
//
// The first bytes on a connection: who has come, and whether to let it in.
#ifndef NCCLTUNE_BENCH_HANDSHAKE_H_
#define NCCLTUNE_BENCH_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/token.h"
#include "bench/world.h"

namespace nccltune::bench {

// Grows when steps, results or this change: all processes of a run are of one version.
inline constexpr uint32_t kWireVersion = 2;

// What a process that comes says. Magic, version and token keep their places in all versions.
struct Arrival {
  uint32_t version = kWireVersion;
  Token token{};
  uint32_t process = 0;
  uint32_t processes = 0;
  uint32_t gpus_per_process = 0;
};

inline constexpr size_t kArrivalBytes = 8 + 4 + 16 + 3 * 4;

std::string Written(const Arrival& arrival);

// Whether the bytes can be the beginning of an arrival, so that others are sent away at once.
bool MayBeArrival(std::string_view begun);

// Of exactly kArrivalBytes; nothing if they are something else.
std::optional<Arrival> ReadArrival(std::string_view bytes);

// Why an arrival with the right token cannot be let in; empty if it can.
std::string Contradiction(const Arrival& arrival, const World& world);

// What it is told: welcome if `refusal` is empty. At most kMostAnswerBytes.
std::string WrittenAnswer(std::string_view refusal);
inline constexpr size_t kMostAnswerBytes = 8 + 2 + 1000;

enum class Answered { kNotYet, kWelcome, kRefused, kGarbage };
// Of the bytes that have come so far. On kNotYet *missing is how many to read next: what follows an
// answer is the conversation's.
Answered ReadAnswer(std::string_view begun, std::string* refusal, size_t* missing);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_HANDSHAKE_H_
