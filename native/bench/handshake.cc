// SPDX-License-Identifier: Apache-2.0
#include "bench/handshake.h"

#include <algorithm>

#include "common/little_endian.h"

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

std::string Serialize(const JoinRequest& request) {
  std::string bytes(kMagic);
  little_endian::Append(&bytes, request.version);
  for (const std::byte byte : request.token) bytes.push_back(static_cast<char>(byte));
  little_endian::Append(&bytes, request.process);
  little_endian::Append(&bytes, request.processes);
  little_endian::Append(&bytes, request.gpus_per_process);
  return bytes;
}

bool MayBeJoinRequest(std::string_view begun) {
  return begun.size() <= kJoinRequestBytes && BeginsWithMagic(begun);
}

std::optional<JoinRequest> ParseJoinRequest(std::string_view bytes) {
  if (bytes.size() != kJoinRequestBytes || !BeginsWithMagic(bytes)) return std::nullopt;
  JoinRequest request;
  request.version = little_endian::Get<uint32_t>(bytes, kVersionAt);
  for (size_t i = 0; i < request.token.size(); ++i) {
    request.token[i] = static_cast<std::byte>(bytes[kTokenAt + i]);
  }
  request.process = little_endian::Get<uint32_t>(bytes, kNumbersAt);
  request.processes = little_endian::Get<uint32_t>(bytes, kNumbersAt + 4);
  request.gpus_per_process = little_endian::Get<uint32_t>(bytes, kNumbersAt + 8);
  return request;
}

std::string RejectionReason(const JoinRequest& request, const World& world) {
  if (request.version != kWireVersion) {
    return "a process runs another version of nccltune-bench (" + std::to_string(request.version) +
           ", not " + std::to_string(kWireVersion) + ")";
  }
  const std::string who = "process " + std::to_string(request.process);
  if (request.processes != static_cast<uint32_t>(world.processes)) {
    return who + " was started as one of " + std::to_string(request.processes) +
           ", process 0 as one of " + std::to_string(world.processes);
  }
  if (request.process == 0 || request.process >= request.processes) {
    return "a process joined as " + who + "; expected 1 to " +
           std::to_string(request.processes - 1);
  }
  if (request.gpus_per_process != static_cast<uint32_t>(world.gpus_per_process)) {
    return who + " has " + std::to_string(request.gpus_per_process) +
           " GPUs per process, process 0 has " + std::to_string(world.gpus_per_process);
  }
  return "";
}

std::string SerializeReply(std::string_view refusal) {
  refusal = refusal.substr(0, kMaxReplyBytes - kAnswerHead);
  std::string bytes(kMagic);
  little_endian::Append(&bytes, static_cast<uint16_t>(refusal.size()));
  bytes += refusal;
  return bytes;
}

JoinReply ParseReply(std::string_view begun, std::string* refusal, size_t* missing) {
  if (!BeginsWithMagic(begun)) return JoinReply::kGarbage;
  if (begun.size() < kAnswerHead) {
    *missing = kAnswerHead - begun.size();
    return JoinReply::kNotYet;
  }
  const size_t length = little_endian::Get<uint16_t>(begun, kMagic.size());
  if (length > kMaxReplyBytes - kAnswerHead) return JoinReply::kGarbage;
  if (begun.size() < kAnswerHead + length) {
    *missing = kAnswerHead + length - begun.size();
    return JoinReply::kNotYet;
  }
  *refusal = begun.substr(kAnswerHead, length);
  return length == 0 ? JoinReply::kWelcome : JoinReply::kRefused;
}

}  // namespace nccltune::bench
