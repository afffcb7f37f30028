// SPDX-License-Identifier: Apache-2.0
#include "net/relay.h"
#include "common/text.h"
#include "net/clock.h"
#include "net/link.h"
#include "testing.h"

namespace nccltune::net {
namespace {

// Like the buffer of a switch: further data stays with the sender.
constexpr size_t kMostWaiting = 1 << 20;

void Reset(Descriptor& socket) {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket.Close();
}

}  // namespace

Relay::Relay(const SocketEndpoint& to) : to_(to) {
  SocketResult opened = ListenOn(Loopback().nics.front(), {});
  EXPECT_EQ(opened.error, 0) << ErrorWords(opened.error);
  listening_ = std::move(opened.socket);
  end_ = LocalEnd(listening_.fd());
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  stop_ = true;
  thread_.join();
}

bool Relay::Befall(size_t connection, Fault fault) {
  const std::scoped_lock lock(mutex_);
  for (Pair& pair : pairs_) {
    if (pair.over || pair.stalled || connection-- != 0) continue;
    Befall(pair, fault);
    return true;
  }
  return false;
}

void Relay::BefallAll(Fault fault) {
  const std::scoped_lock lock(mutex_);
  for (Pair& pair : pairs_) {
    if (!pair.over) Befall(pair, fault);
  }
}

void Relay::Befall(Pair& pair, Fault fault) {
  switch (fault) {
    case Fault::kEnd:
      pair.forward.ended = pair.backward.ended = true;
      break;
    case Fault::kReset:
      Reset(pair.near);
      Reset(pair.far);
      pair.over = true;
      break;
    case Fault::kTruncate:
      pair.truncates = true;
      break;
    case Fault::kStall:
      pair.stalled = true;
      break;
  }
}

void Relay::StopListening() {
  const std::scoped_lock lock(mutex_);
  listening_.Close();
}

void Relay::Run() {
  while (!stop_) Turn();
}

void Relay::Turn() {
  std::vector<pollfd> watched;
  {
    const std::scoped_lock lock(mutex_);
    AcceptAll();
    for (Pair& pair : pairs_) {
      if (pair.over || pair.stalled) continue;
      Pass(pair, pair.near, pair.far, pair.forward);
      if (!pair.over) Pass(pair, pair.far, pair.near, pair.backward);
      if (pair.over) continue;
      const auto events = [](const Direction& in, const Direction& out) {
        const bool reads = !in.ended && in.waiting < kMostWaiting;
        return static_cast<short>((reads ? POLLIN : 0) | (out.waiting != 0 ? POLLOUT : 0));
      };
      watched.push_back({pair.near.fd(), events(pair.forward, pair.backward), 0});
      watched.push_back({pair.far.fd(), events(pair.backward, pair.forward), 0});
    }
    std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
    size_ = pairs_.size();
    if (listening_) watched.push_back({listening_.fd(), POLLIN, 0});
  }
  // Delayed data keeps its socket ready all the time, so check once per millisecond.
  if (delay_ns_ != 0) watched.clear();
  poll(watched.data(), watched.size(), 1);
}

void Relay::AcceptAll() {
  while (listening_) {
    SocketResult near = AcceptOne(listening_.fd(), -1);
    if (!near.socket) return;
    SocketResult far = StartConnecting(Loopback().nics.front(), to_, -1);
    pollfd watched = {far.socket.fd(), POLLOUT, 0};
    // Over loopback, connect completes or fails immediately.
    if (!far.socket || poll(&watched, 1, 1000) != 1) continue;
    if (ConnectResult(far.socket.fd()) != 0) continue;
    Pair& pair = pairs_.emplace_back();
    pair.near = std::move(near.socket);
    pair.far = std::move(far.socket);
  }
}

void Relay::Pass(Pair& pair, Descriptor& from, Descriptor& to, Direction& way) {
  const bool forward = &way == &pair.forward;
  while (!way.ended && way.waiting < kMostWaiting) {
    std::array<std::byte, 1 << 16> bytes;
    iovec part = {bytes.data(), bytes.size()};
    const IoResult moved = ReadSome(from.fd(), {&part, 1});
    if (moved.would_block()) break;
    if (moved.error != 0) return Befall(pair, Fault::kReset);
    size_t kept = moved.bytes;
    if (kept == 0) way.ended = true;
    if (forward && pair.truncates && kept != 0) {
      kept /= 2;
      way.ended = pair.backward.ended = true;
    }
    if (kept == 0) break;
    way.waiting += kept;
    const auto end = bytes.begin() + static_cast<ptrdiff_t>(kept);
    way.pieces.push_back({NowNs() + delay_ns_, {bytes.begin(), end}});
  }
  while (!way.pieces.empty() && way.pieces.front().due_ns <= NowNs()) {
    std::vector<std::byte>& bytes = way.pieces.front().bytes;
    iovec part = {bytes.data(), bytes.size()};
    const IoResult moved = WriteSome(to.fd(), {&part, 1});
    if (moved.would_block()) return;
    if (moved.error != 0) return Befall(pair, Fault::kReset);
    way.waiting -= moved.bytes;
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(moved.bytes));
    if (bytes.empty()) way.pieces.pop_front();
  }
  if (!way.ended || !way.pieces.empty() || way.shut) return;
  shutdown(to.fd(), SHUT_WR);
  way.shut = true;
  pair.over = pair.forward.shut && pair.backward.shut;
}

}  // namespace nccltune::net
