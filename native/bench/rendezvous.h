// SPDX-License-Identifier: Apache-2.0
// Connects the processes of a run: process 0 listens, and the others connect to it. Connections
// from other programs are closed without affecting the run.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/backend.h"
#include "bench/wire.h"
#include "common/token.h"

namespace nccltune::bench {

// The address at which process 0 listens and to which the other processes connect.
struct Endpoint {
  std::string host;  // a host name, or an IPv4 or IPv6 address
  int port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Parses "host:29500", "10.0.0.1:29500" or "[fe80::1%eth0]:29500". Returns nullopt for any other
// form.
std::optional<Endpoint> ParseEndpoint(std::string_view text);

std::string ToString(const Endpoint& endpoint);

// Returns whether the host is an IP address or "localhost". Process 0 then listens on exactly that
// address. For any other host name, process 0 listens on all interfaces, because many hosts resolve
// their own name to a loopback address.
bool IsExact(const Endpoint& endpoint);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Returns all TCP addresses of the host. If there is none, returns an empty list and the resolver's
// message in *error.
std::vector<SocketAddress> Resolve(const Endpoint& endpoint, std::string* error);

// Returns the wildcard addresses. The IPv6 address is first, because it accepts IPv4 too. The IPv4
// address is for hosts without IPv6.
std::vector<SocketAddress> AnyInterface(int port);

// The handshake on a new connection: a process sends a JoinRequest, and process 0 accepts or
// rejects that process.

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
