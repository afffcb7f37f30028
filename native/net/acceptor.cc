// SPDX-License-Identifier: Apache-2.0
#include "net/acceptor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "common/contain.h"
#include "common/text.h"
#include "net/clock.h"
#include "net/receiver.h"

namespace nccltune::net {
namespace {

constexpr int64_t kHelloLimitNs = 5 * kNsPerSecond;
// A new connection is dropped if a flow is still missing this long after its first flow arrived.
constexpr int64_t kPendingLimitNs = 60 * kNsPerSecond;
// Accept fails if for this long no file descriptor was free, and we had no socket to close.
constexpr int64_t kExhaustedLimitNs = 10 * kNsPerSecond;
constexpr int64_t kPollNs = 10 * kNsPerMs;
// Limit of accepted sockets whose hello has not arrived. A port scan opens fewer at once. At the
// limit, the oldest handshake is closed.
constexpr size_t kMostHandshakes = 512;
constexpr int kAcceptsATurn = 64;

void CloseDead(PendingConnection& pending) {
  for (Descriptor& socket : pending.sockets) {
    if (!socket || !HasEnded(socket.fd())) continue;
    socket.Close();
    --pending.arrived;
  }
}

}  // namespace

Acceptor::Acceptor(const ConnectionContext& context, std::string device)
    : context_(context), device_(std::move(device)) {}

std::shared_ptr<Acceptor> Acceptor::Open(const ConnectionContext& context, const Device& device,
                                         std::string* why) {
  std::shared_ptr<Acceptor> acceptor(new Acceptor(context, device.name));
  const std::optional<Token> token = NewToken();
  if (!token) {
    *why = "no random numbers: " + ErrorWords(errno);
    return nullptr;
  }
  acceptor->invitation_.token = *token;
  for (const Nic& nic : device.nics) {
    // A handle carries addresses of one family only.
    if (nic.address.family() != device.nics.front().address.family()) continue;
    SocketResult opened = ListenOn(nic, context.settings.ports);
    if (!opened.socket) {
      const PortRange& ports = context.settings.ports;
      if (IsDescriptorShortage(opened.error)) {
        *why = ShortageText("socket", opened.error);
        return nullptr;
      }
      *why = "cannot listen on " + nic.name + ": " + ErrorWords(opened.error);
      if (ports.first != 0) {
        *why += " (NCCLTUNE_NET_PORTS=" + std::to_string(ports.first) + "-" +
                std::to_string(ports.last) + ": each connection needs a port of its own)";
      }
      return nullptr;
    }
    acceptor->invitation_.ends.push_back(LocalEnd(opened.socket.fd()));
    acceptor->listening_.push_back(std::move(opened.socket));
  }
  return acceptor;
}

Acceptor::~Acceptor() {
  if (worker_ != nullptr) worker_->Remove(task_number_);
  if (rejected_ == 0) return;
  Contain([&] {
    context_.log.Info(std::to_string(rejected_) + " foreign connections were closed at " +
                      invitation_.ends.front().Name());
  });
}

std::optional<PendingConnection> Acceptor::TakeConnection(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  Advance(now_ns);
  for (auto at = pending_.begin(); at != pending_.end(); ++at) {
    PendingConnection& pending = at->second;
    if (pending.arrived != pending.sockets.size()) continue;
    // The peer may have closed some flows in the meantime.
    CloseDead(pending);
    if (pending.arrived != pending.sockets.size()) continue;
    // Register the connection before its welcomes are sent. Otherwise a flow that reconnects at
    // once would be taken for a new connection.
    served_[pending.connection] = ServedConnection();
    for (Descriptor& socket : pending.sockets) SendWelcome(socket, Welcome());
    PendingConnection taken = std::move(pending);
    pending_.erase(at);
    return taken;
  }
  return std::nullopt;
}

std::optional<std::string> Acceptor::TakeFailure() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(failure_, std::nullopt);
}

void Acceptor::Serve(const std::shared_ptr<Pool>& pool, uint64_t connection, Receiver* receiver) {
  {
    const std::scoped_lock lock(mutex_);
    served_[connection].receiver = receiver;
  }
  if (worker_ != nullptr) return;
  // Call Pick and Add without holding `mutex_`. The worker thread locks its own mutex first and
  // `mutex_` second; the opposite order could deadlock.
  worker_ = pool->Pick(Pool::Role::kReceive, Pool::Kind::kOther);
  task_number_ = worker_->Add(this);
  pool_ = pool;
  for (const Descriptor& socket : listening_) {
    const int error = worker_->Watch(task_number_, socket.fd(), EPOLLIN);
    if (error == 0) continue;
    const std::scoped_lock lock(mutex_);
    unwatched_ = true;
    poll_needed_ = true;
    context_.log.Info("epoll_ctl: " + ErrorWords(error) + ": " + invitation_.ends.front().Name() +
                      " is polled every 10 ms");
    worker_->Wake();
  }
}

void Acceptor::StopServing(uint64_t connection) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto served = served_.find(connection);
  if (served != served_.end()) served->second = {.receiver = nullptr, .ended = true};
}

void Acceptor::CloseToNew() noexcept {
  const std::scoped_lock lock(mutex_);
  open_to_new_ = false;
  pending_.clear();
}

bool Acceptor::Work(int64_t now_ns) {
  if (!ready_ && !(poll_needed_ && now_ns - worked_ns_ >= kPollNs)) return false;
  ready_ = false;
  worked_ns_ = now_ns;
  const std::scoped_lock lock(mutex_);
  return Advance(now_ns);
}

int64_t Acceptor::NextNs() const { return poll_needed_ ? NowNs() + kPollNs : INT64_MAX; }

void Acceptor::OnException(const char* what) noexcept {
  // The exception has closed the socket that was being accepted. The peer connects again.
  poll_needed_ = true;
  context_.log.Warn(what);
}

// Accepts sockets and advances all handshakes. Returns whether a socket was accepted or a handshake
// ended. The caller holds `mutex_`.
bool Acceptor::Advance(int64_t now_ns) {
  backlog_left_ = false;
  int shortage = 0;
  bool progress = AcceptWaiting(now_ns, &shortage);
  progress |= ReadHellos(now_ns);
  DropDeadFlows(now_ns);
  if (shortage != 0) {
    HandleShortage(shortage, now_ns);
  } else {
    exhausted_since_ns_ = 0;
  }
  spare_->Restore();
  poll_needed_ = backlog_left_ || unwatched_ || !handshakes_.empty() || !pending_.empty();
  return progress;
}

// Accepts waiting sockets, at most kAcceptsATurn on each address. Sets `*shortage` to the errno
// value if sockets must wait for a free file descriptor.
bool Acceptor::AcceptWaiting(int64_t now_ns, int* shortage) {
  bool progress = false;
  for (const Descriptor& socket : listening_) {
    for (int i = 0;; ++i) {
      // Poll for the remaining sockets: epoll is edge-triggered and does not report them again.
      if (i == kAcceptsATurn) {
        backlog_left_ = true;
        break;
      }
      MakeRoomForOne(now_ns);
      SocketResult opened =
          AcceptOne(socket.fd(), context_.traffic_class, context_.settings.path_timeout_ms);
      if (opened.error == EAGAIN) break;
      if (IsDescriptorShortage(opened.error)) {
        backlog_left_ = true;
        // Accept with the spare descriptor: it allows us to read the peer's hello and to refuse
        // with a reason.
        if (spare_->Release()) continue;
        *shortage = opened.error;
        break;
      }
      if (!opened.socket) continue;
      progress = true;
      handshakes_.push_back({.socket = std::move(opened.socket), .since_ns = now_ns});
    }
  }
  return progress;
}

// Closes the oldest handshake if there are too many. A peer whose hello has arrived is never closed
// here: complete hellos are read first.
void Acceptor::MakeRoomForOne(int64_t now_ns) {
  if (handshakes_.size() < kMostHandshakes) return;
  ReadHellos(now_ns);
  if (handshakes_.size() < kMostHandshakes) return;
  handshakes_.erase(handshakes_.begin());
  ++rejected_;
}

bool Acceptor::ReadHellos(int64_t now_ns) {
  for (PendingHandshake& handshake : handshakes_) {
    if (!ReadHello(handshake, now_ns)) handshake.socket.Close();
  }
  return std::erase_if(handshakes_,
                       [](const PendingHandshake& handshake) { return !handshake.socket; }) != 0;
}

bool Acceptor::ReadHello(PendingHandshake& handshake, int64_t now_ns) {
  Descriptor& socket = handshake.socket;
  while (handshake.filled < handshake.hello.size()) {
    iovec rest = {handshake.hello.data() + handshake.filled,
                  handshake.hello.size() - handshake.filled};
    const IoResult moved = ReadSome(socket.fd(), {&rest, 1});
    if (moved.would_block() && now_ns - handshake.since_ns <= kHelloLimitNs) return true;
    if (moved.error != 0 || moved.bytes == 0) {
      ++rejected_;
      return false;
    }
    handshake.filled += moved.bytes;
  }
  const std::optional<Hello> hello = DecodeHello(handshake.hello);
  if (!hello || !SameToken(hello->token, invitation_.token)) {
    ++rejected_;
    return false;
  }
  if (hello->release != kWireRelease) {
    // Warn once, not for every flow of the peer.
    if (!std::exchange(other_release_logged_, true)) {
      context_.log.Warn("a peer at " + PeerEnd(socket.fd()).Name() + " uses release " +
                        std::to_string(hello->release) + " of the wire format, ours is " +
                        std::to_string(kWireRelease) +
                        ": install one version of nccltune on all nodes");
    }
    SendWelcome(socket, {.status = WelcomeStatus::kOtherRelease});
    return false;
  }
  Assign(*hello, std::move(socket), now_ns);
  return false;
}

// Handles a flow whose hello is valid. A flow of an established connection goes to its receiver; a
// flow of a new connection is kept until all flows have arrived. Other flows are refused or closed.
void Acceptor::Assign(const Hello& hello, Descriptor socket, int64_t now_ns) {
  const auto served = served_.find(hello.connection);
  if (served != served_.end() && !served->second.ended) {
    // The receiver is still being created. The flow is closed, and its peer connects again.
    if (served->second.receiver == nullptr) return;
    SendWelcome(socket, Welcome());
    served->second.receiver->Adopt(hello.flow, std::move(socket));
    return;
  }
  if (!open_to_new_ || served != served_.end()) {
    SendWelcome(socket, {.status = WelcomeStatus::kUnknownConnection});
    return;
  }
  const auto refused = refused_.find(hello.connection);
  if (refused != refused_.end()) {
    SendWelcome(socket, {.status = WelcomeStatus::kFewerFlows, .flows = refused->second});
    return;
  }
  PendingConnection& pending = pending_[hello.connection];
  if (pending.sockets.empty()) {
    pending.connection = hello.connection;
    pending.sockets.resize(hello.flows);
    pending.since_ns = now_ns;
  }
  if (hello.flow >= pending.sockets.size()) return;
  Descriptor& place = pending.sockets[hello.flow];
  if (!place) ++pending.arrived;
  place = std::move(socket);
}

// Drops flows that the peer has closed. Then drops connections that have no flow left, or that stay
// incomplete for longer than kPendingLimitNs.
void Acceptor::DropDeadFlows(int64_t now_ns) {
  if (pending_.empty() || now_ns - checked_ns_ < kPollNs) return;
  checked_ns_ = now_ns;
  for (auto& [connection, pending] : pending_) CloseDead(pending);
  std::erase_if(pending_, [&](const auto& each) {
    const PendingConnection& pending = each.second;
    // A connection whose flows have all arrived waits for NCCL's next accept without a time limit.
    const bool late =
        pending.arrived != pending.sockets.size() && now_ns - pending.since_ns > kPendingLimitNs;
    return pending.arrived == 0 || late;
  });
}

// Called when peers wait and no file descriptor is free. Refuses all incomplete connections: their
// missing flows could not be accepted. Each refused peer learns with how many flows it may retry:
// as many as had arrived, or 0 (do not retry) if those are too few. Complete connections are kept
// for the next accepts.
void Acceptor::HandleShortage(int error, int64_t now_ns) {
  ReportShortage(context_.log, "accept", error);
  bool freed = false;
  for (auto at = pending_.begin(); at != pending_.end();) {
    PendingConnection& pending = at->second;
    // A peer that has left needs no answer, and its flows free their descriptors.
    const size_t arrived = pending.arrived;
    CloseDead(pending);
    freed |= pending.arrived != arrived;
    if (pending.arrived == 0) {
      at = pending_.erase(at);
      continue;
    }
    if (pending.arrived == pending.sockets.size()) {
      ++at;
      continue;
    }
    // One descriptor of the first refused connection is kept in reserve (`spare_`).
    const size_t reserve = freed ? 0 : 1;
    const size_t flows = pending.arrived > reserve ? pending.arrived - reserve : 0;
    Refuse(pending, flows < kFewestFlows ? uint16_t{0} : static_cast<uint16_t>(flows));
    freed = true;
    at = pending_.erase(at);
  }
  // A complete connection that is left means that the next accept succeeds.
  if (freed || !handshakes_.empty() || !pending_.empty()) {
    exhausted_since_ns_ = 0;
    return;
  }
  // No descriptor of ours can be freed. Report a failure if that lasts for kExhaustedLimitNs.
  if (exhausted_since_ns_ == 0) exhausted_since_ns_ = now_ns;
  if (now_ns - exhausted_since_ns_ < kExhaustedLimitNs) return;
  failure_ = ShortageText("accept", error);
}

void Acceptor::Refuse(PendingConnection& pending, uint16_t flows) {
  refused_[pending.connection] = flows;
  for (Descriptor& socket : pending.sockets) {
    if (!socket) continue;
    SendWelcome(socket, {.status = WelcomeStatus::kFewerFlows, .flows = flows});
    socket.Close();
  }
  if (flows == 0) failure_ = ShortageText("accept", EMFILE);
}

void Acceptor::SendWelcome(Descriptor& socket, const Welcome& welcome) {
  auto bytes = Encode(welcome);
  iovec part = {bytes.data(), bytes.size()};
  // The send buffer of a new socket is empty, so the welcome always fits.
  (void)WriteSome(socket.fd(), {&part, 1});
}

}  // namespace nccltune::net
