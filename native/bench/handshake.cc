// SPDX-License-Identifier: Apache-2.0
#include "bench/handshake.h"

#include <algorithm>

#include "bench/little_endian.h"

namespace nccltune::bench {
namespace {

constexpr std::string_view kMagic = "nccltune";
constexpr size_t kVersionAt = 8;
constexpr size_t kTokenAt = 12;
constexpr size_t kNumbersAt = 28;
constexpr size_t kAnswerHead = 8 + 2;
static_assert(kMagic.size() == kVersionAt);

bool BeginsWithMagic(std::string_view begun) {
  const size_t known = std::min(begun.size(), kMagic.size());
  return begun.substr(0, known) == kMagic.substr(0, known);
}

}  // namespace

std::string Written(const Arrival& arrival) {
  std::string bytes(kMagic);
  AppendUint32(&bytes, arrival.version);
  for (const uint8_t byte : arrival.token) bytes.push_back(static_cast<char>(byte));
  AppendUint32(&bytes, arrival.process);
  AppendUint32(&bytes, arrival.processes);
  AppendUint32(&bytes, arrival.gpus_per_process);
  return bytes;
}

bool MayBeArrival(std::string_view begun) {
  return begun.size() <= kArrivalBytes && BeginsWithMagic(begun);
}

std::optional<Arrival> ReadArrival(std::string_view bytes) {
  if (bytes.size() != kArrivalBytes || !BeginsWithMagic(bytes)) return std::nullopt;
  Arrival arrival;
  arrival.version = Uint32At(bytes, kVersionAt);
  for (size_t i = 0; i < arrival.token.size(); ++i) {
    arrival.token[i] = static_cast<uint8_t>(bytes[kTokenAt + i]);
  }
  arrival.process = Uint32At(bytes, kNumbersAt);
  arrival.processes = Uint32At(bytes, kNumbersAt + 4);
  arrival.gpus_per_process = Uint32At(bytes, kNumbersAt + 8);
  return arrival;
}

std::string Contradiction(const Arrival& arrival, const World& world) {
  if (arrival.version != kWireVersion) {
    return "a process of another version of nccltune-bench has come (" +
           std::to_string(arrival.version) + ", not " + std::to_string(kWireVersion) + ")";
  }
  const std::string who = "process " + std::to_string(arrival.process);
  if (arrival.processes != static_cast<uint32_t>(world.processes)) {
    return who + " was started as one of " + std::to_string(arrival.processes) +
           ", process 0 as one of " + std::to_string(world.processes);
  }
  if (arrival.process == 0 || arrival.process >= arrival.processes) {
    return "a second process says that it is process " + std::to_string(arrival.process);
  }
  if (arrival.gpus_per_process != static_cast<uint32_t>(world.gpus_per_process)) {
    return who + " has " + std::to_string(arrival.gpus_per_process) +
           " GPUs per process, process 0 has " + std::to_string(world.gpus_per_process);
  }
  return "";
}

std::string WrittenAnswer(std::string_view refusal) {
  refusal = refusal.substr(0, kMostAnswerBytes - kAnswerHead);
  std::string bytes(kMagic);
  bytes.push_back(static_cast<char>(static_cast<unsigned char>(refusal.size() & 0xffU)));
  bytes.push_back(static_cast<char>(static_cast<unsigned char>(refusal.size() >> 8U)));
  bytes += refusal;
  return bytes;
}

Answered ReadAnswer(std::string_view begun, std::string* refusal, size_t* missing) {
  if (!BeginsWithMagic(begun)) return Answered::kGarbage;
  if (begun.size() < kAnswerHead) {
    *missing = kAnswerHead - begun.size();
    return Answered::kNotYet;
  }
  const size_t length =
      static_cast<unsigned char>(begun[8]) | size_t{static_cast<unsigned char>(begun[9])} << 8U;
  if (length > kMostAnswerBytes - kAnswerHead) return Answered::kGarbage;
  if (begun.size() < kAnswerHead + length) {
    *missing = kAnswerHead + length - begun.size();
    return Answered::kNotYet;
  }
  *refusal = begun.substr(kAnswerHead, length);
  return length == 0 ? Answered::kWelcome : Answered::kRefused;
}

}  // namespace nccltune::bench
