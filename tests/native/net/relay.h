// SPDX-License-Identifier: Apache-2.0
//
// A network between the two ends of a connection, which delays, loses and cuts short.
#ifndef NCCLTUNE_TESTS_NET_RELAY_H_
#define NCCLTUNE_TESTS_NET_RELAY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "net/socket.h"

namespace nccltune::net {

class Relay {
 public:
  enum class Fault {
    kEnd,       // both ways, after what is under way
    kReset,     // both ways, at once
    kTruncate,  // of what comes next forward only half is passed on, and then the end
    kStall,     // nothing is read any more, and nobody is told
  };

  // Whoever connects here is connected with `to`.
  explicit Relay(const Endpoint& to);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const Endpoint& end() const { return end_; }
  // Every byte is passed on so much later, each way.
  void SetDelay(int64_t ns) { delay_ns_ = ns; }
  // Connections that stand.
  size_t size() const { return size_; }
  // Befalls the connection, counted from the oldest that stands; false where there are fewer.
  bool Befall(size_t connection, Fault fault);
  void BefallAll(Fault fault);
  // Connections are refused from now on.
  void StopListening();

 private:
  struct Piece {
    int64_t due_ns = 0;
    std::vector<std::byte> bytes;
  };
  // One way of a connection.
  struct Way {
    std::deque<Piece> pieces;
    size_t waiting = 0;  // bytes in them
    bool ended = false;  // nothing more is read
    bool shut = false;   // and the reader knows
  };
  struct Pair {
    Socket near;
    Socket far;
    Way forward;
    Way backward;
    bool truncates = false;
    bool stalled = false;
    bool over = false;
  };

  void Run();
  void Turn();
  void AcceptAll();
  void Pass(Pair& pair, Socket& from, Socket& to, Way& way);
  static void Befall(Pair& pair, Fault fault);

  Endpoint to_;
  Endpoint end_;
  std::atomic<int64_t> delay_ns_ = 0;
  std::atomic<size_t> size_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  Socket listening_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_TESTS_NET_RELAY_H_
