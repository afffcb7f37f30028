// SPDX-License-Identifier: Apache-2.0
#include "net/door.h"

#include <sys/epoll.h>
#include <sys/random.h>

#include <algorithm>

#include "net/clock.h"
#include "net/receiver.h"

namespace nccltune::net {
namespace {

constexpr int64_t kHelloLimitNs = 5 * kNsPerSecond;
// From the first flow of a connection to its last.
constexpr int64_t kPartyLimitNs = 60 * kNsPerSecond;
constexpr int64_t kLookNs = 10 * kNsPerMs;
// More than a scan opens at once; beyond it who came first goes.
constexpr size_t kMostStrangers = 512;
constexpr int kAcceptsATurn = 64;

}  // namespace

Door::Door(const Surroundings& surroundings, std::string device)
    : surroundings_(surroundings), device_(std::move(device)) {}

std::shared_ptr<Door> Door::Open(const Surroundings& surroundings, const Device& device,
                                 std::string* why) {
  std::shared_ptr<Door> door(new Door(surroundings, device.name));
  std::span<std::byte> token(door->invitation_.token.bytes);
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    *why = "no random numbers: " + ErrorWords(errno);
    return nullptr;
  }
  for (const Nic& nic : device.nics) {
    // One family a handle.
    if (nic.address.family() != device.nics.front().address.family()) continue;
    Opened opened = ListenOn(nic, surroundings.settings.ports);
    if (!opened.socket.open()) {
      const PortRange& ports = surroundings.settings.ports;
      *why = "cannot listen on " + nic.name + ": " + ErrorWords(opened.error);
      if (ports.first != 0) {
        *why += " (NCCLTUNE_NET_PORTS=" + std::to_string(ports.first) + "-" +
                std::to_string(ports.last) + ": each connection needs a port of its own)";
      }
      return nullptr;
    }
    door->invitation_.ends.push_back(LocalEnd(opened.socket.fd()));
    door->listening_.push_back(std::move(opened.socket));
  }
  return door;
}

Door::~Door() {
  if (worker_ != nullptr) worker_->Remove(number_);
  if (turned_away_ != 0) {
    surroundings_.log.Info(std::to_string(turned_away_) + " strangers were turned away at " +
                           invitation_.ends.front().Name());
  }
}

std::optional<Party> Door::TakeParty(int64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  Look(now_ns);
  for (auto at = arriving_.begin(); at != arriving_.end(); ++at) {
    Arriving& arriving = at->second;
    if (arriving.here != arriving.party.sockets.size()) continue;
    for (Socket& socket : arriving.party.sockets) Answer(socket, Verdict::kTaken);
    Party party = std::move(arriving.party);
    arriving_.erase(at);
    served_[party.connection] = nullptr;
    return party;
  }
  return std::nullopt;
}

void Door::Serve(const std::shared_ptr<Pool>& pool, uint64_t connection, Receiver* receiver) {
  {
    const std::scoped_lock lock(mutex_);
    served_[connection] = receiver;
    if (pool_ != nullptr) return;
    pool_ = pool;
  }
  // Not under the lock: the worker holds its own when it asks for ours.
  worker_ = &pool->Pick(Pool::Role::kReceive, Pool::Kind::kOther);
  number_ = worker_->Add(this);
  for (const Socket& socket : listening_) worker_->Watch(number_, socket.fd(), EPOLLIN);
}

void Door::StopServing(uint64_t connection) {
  const std::scoped_lock lock(mutex_);
  served_.erase(connection);
  ended_.insert(connection);
}

void Door::CloseToNew() {
  const std::scoped_lock lock(mutex_);
  open_to_new_ = false;
  arriving_.clear();
}

bool Door::Work(int64_t now_ns) {
  if (!told_ && !(somebody_ && now_ns - looked_ns_ >= kLookNs)) return false;
  told_ = false;
  looked_ns_ = now_ns;
  const std::scoped_lock lock(mutex_);
  return Look(now_ns);
}

int64_t Door::NextNs() const { return somebody_ ? NowNs() + kLookNs : INT64_MAX; }

bool Door::Look(int64_t now_ns) {
  waiting_ = false;
  bool something = AcceptAll(now_ns);
  for (size_t i = 0; i < strangers_.size();) {
    if (Hear(strangers_[i], now_ns)) {
      ++i;
      continue;
    }
    strangers_[i] = std::move(strangers_.back());
    strangers_.pop_back();
    something = true;
  }
  std::erase_if(arriving_,
                [&](const auto& each) { return now_ns - each.second.since_ns > kPartyLimitNs; });
  somebody_ = waiting_ || !strangers_.empty() || !arriving_.empty();
  return something;
}

bool Door::AcceptAll(int64_t now_ns) {
  bool something = false;
  for (const Socket& socket : listening_) {
    for (int i = 0;; ++i) {
      Opened opened = AcceptOne(socket.fd(), surroundings_.traffic_class);
      if (opened.error == EAGAIN) break;
      // Nobody tells again of who still waits: behind the many, or until there are handles again.
      if (i == kAcceptsATurn || opened.error == EMFILE || opened.error == ENFILE) {
        waiting_ = true;
        break;
      }
      if (!opened.socket.open()) continue;
      something = true;
      if (strangers_.size() >= kMostStrangers) {
        strangers_.erase(strangers_.begin());
        ++turned_away_;
      }
      strangers_.push_back({.socket = std::move(opened.socket), .since_ns = now_ns});
    }
  }
  return something;
}

bool Door::Hear(Stranger& stranger, int64_t now_ns) {
  while (stranger.filled < stranger.said.size()) {
    iovec rest = {stranger.said.data() + stranger.filled, stranger.said.size() - stranger.filled};
    const Moved moved = ReadSome(stranger.socket.fd(), {&rest, 1});
    if (moved.later() && now_ns - stranger.since_ns <= kHelloLimitNs) return true;
    if (moved.error != 0 || moved.bytes == 0) {
      ++turned_away_;
      return false;
    }
    stranger.filled += moved.bytes;
  }
  const std::optional<Hello> hello = DecodeHello(stranger.said);
  if (!hello || !Same(hello->token, invitation_.token)) {
    ++turned_away_;
    return false;
  }
  if (hello->release != kWireRelease) {
    // Each of its flows comes by.
    if (!std::exchange(other_release_told_, true)) {
      surroundings_.log.Warn("a peer at " + PeerEnd(stranger.socket.fd()).Name() +
                             " speaks release " + std::to_string(hello->release) +
                             " of the wire format, this is " + std::to_string(kWireRelease) +
                             ": install one version of nccltune on all nodes");
    }
    Answer(stranger.socket, Verdict::kOtherRelease);
    return false;
  }
  LetIn(*hello, std::move(stranger.socket), now_ns);
  return false;
}

void Door::LetIn(const Hello& hello, Socket socket, int64_t now_ns) {
  const auto served = served_.find(hello.connection);
  if (served != served_.end()) {
    // Dropped: it dials again.
    if (served->second == nullptr) return;
    Answer(socket, Verdict::kTaken);
    served->second->Adopt(hello.flow, std::move(socket));
    return;
  }
  if (!open_to_new_ || ended_.contains(hello.connection)) {
    Answer(socket, Verdict::kUnknownConnection);
    return;
  }
  Arriving& arriving = arriving_[hello.connection];
  if (arriving.party.sockets.empty()) {
    arriving.party.connection = hello.connection;
    arriving.party.sockets.resize(hello.flows);
    arriving.since_ns = now_ns;
  }
  if (hello.flow >= arriving.party.sockets.size()) return;
  Socket& place = arriving.party.sockets[hello.flow];
  if (!place.open()) ++arriving.here;
  place = std::move(socket);
}

void Door::Answer(Socket& socket, Verdict verdict) {
  auto bytes = Encode(Welcome{kWireRelease, verdict});
  iovec part = {bytes.data(), bytes.size()};
  // A new socket has room for it.
  (void)WriteSome(socket.fd(), {&part, 1});
}

}  // namespace nccltune::net
