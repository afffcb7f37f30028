// SPDX-License-Identifier: Apache-2.0
// A relay between the two ends of a connection that simulates a network: it delays, drops and
// truncates data.
#ifndef NCCLTUNE_TESTS_NET_RELAY_H_
#define NCCLTUNE_TESTS_NET_RELAY_H_

#include "net/socket.h"
#include "standard.h"

namespace nccltune::net {

class Relay {
 public:
  enum class Fault {
    kEnd,       // closes both directions, after delivering the data in flight
    kReset,     // resets both directions immediately
    kTruncate,  // delivers half of the next forward data, then closes
    kStall,     // stops reading silently
  };

  // Each connection to the relay is forwarded to `to`.
  explicit Relay(const SocketEndpoint& to);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const SocketEndpoint& end() const { return end_; }
  // Delays every byte, in both directions.
  void SetDelay(int64_t ns) { delay_ns_ = ns; }
  // Returns the number of open connections.
  size_t size() const { return size_; }
  // Applies a fault to a connection, counted from the oldest open one. Returns false if there are
  // fewer.
  bool Befall(size_t connection, Fault fault);
  void BefallAll(Fault fault);
  // Refuses connections from now on.
  void StopListening();

 private:
  struct Piece {
    int64_t due_ns = 0;
    std::vector<std::byte> bytes;
  };
  // One direction of a connection.
  struct Direction {
    std::deque<Piece> pieces;
    size_t waiting = 0;  // bytes in them
    bool ended = false;  // the end was read
    bool shut = false;   // the end was passed on
  };
  struct Pair {
    Descriptor near;
    Descriptor far;
    Direction forward;
    Direction backward;
    bool truncates = false;
    bool stalled = false;
    bool over = false;
  };

  void Run();
  void Turn();
  void AcceptAll();
  void Pass(Pair& pair, Descriptor& from, Descriptor& to, Direction& way);
  static void Befall(Pair& pair, Fault fault);

  SocketEndpoint to_;
  SocketEndpoint end_;
  std::atomic<int64_t> delay_ns_ = 0;
  std::atomic<size_t> size_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Descriptor listening_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_RELAY_H_
