// SPDX-License-Identifier: Apache-2.0
//
// The handshake on a new connection: a process sends a JoinRequest, and process 0 accepts or
// rejects that process.
#ifndef NCCLTUNE_BENCH_HANDSHAKE_H_
#define NCCLTUNE_BENCH_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bench/backend.h"
#include "common/token.h"

namespace nccltune::bench {

// The version of the messages. Increase it when the format of steps, results or the handshake
// changes. All processes of a run must have the same version.
inline constexpr uint32_t kWireVersion = 2;

// The first message of a process that connects. Magic number, version and token have the same
// offsets in all versions.
struct JoinRequest {
  uint32_t version = kWireVersion;
  Token token{};
  uint32_t process = 0;
  uint32_t processes = 0;
  uint32_t gpus_per_process = 0;
};

inline constexpr size_t kJoinRequestBytes = 8 + 4 + 16 + 3 * 4;

std::string Serialize(const JoinRequest& request);

// Returns whether the bytes can be the beginning of a JoinRequest. If not, process 0 closes the
// connection at once.
bool MayBeJoinRequest(std::string_view begun);

// Parses exactly kJoinRequestBytes. Returns nullopt if they are not a JoinRequest.
std::optional<JoinRequest> ParseJoinRequest(std::string_view bytes);

// Returns the reason to reject a process that has the right token; empty if the process is
// accepted.
std::string RejectionReason(const JoinRequest& request, const World& world);

// Returns the reply to a JoinRequest, at most kMaxReplyBytes long. An empty `refusal` means that
// the process is accepted.
std::string SerializeReply(std::string_view refusal);
inline constexpr size_t kMaxReplyBytes = 8 + 2 + 1000;

enum class JoinReply { kNotYet, kWelcome, kRefused, kGarbage };
// Parses the bytes received so far. For kRefused, *refusal is the reason. For kNotYet, *missing is
// the number of bytes to read next; reading more could consume bytes of the messages that follow
// the reply. kGarbage means that the bytes are no reply.
JoinReply ParseReply(std::string_view begun, std::string* refusal, size_t* missing);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_HANDSHAKE_H_
