// SPDX-License-Identifier: Apache-2.0
// The listening sockets of a device, and the flows that arrive there. A flow is one TCP connection;
// several flows form one connection of NCCL. A peer must know the listener's token. Other TCP
// connections are closed and counted, and delay no flow.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/descriptors.h"
#include "net/pool.h"
#include "net/socket.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class Receiver;

// A new connection whose flows are still arriving, or that waits until NCCL accepts it.
struct PendingConnection {
  uint64_t connection = 0;
  std::vector<Descriptor> sockets;  // indexed by flow; 0 is the express flow
  size_t arrived = 0;               // number of flows that have arrived
  int64_t since_ns = 0;
};

class Acceptor final : public Task {
 public:
  // Listens on those NICs of the device that have the address family of its first NIC. Returns null
  // and sets `*why` if that fails.
  static std::shared_ptr<Acceptor> Open(const ConnectionContext& context, const Device& device,
                                        std::string* why);
  ~Acceptor() override;
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  const Invitation& invitation() const { return invitation_; }
  const ConnectionContext& context() const { return context_; }
  const std::string& device() const { return device_; }

  // Accepts waiting flows. Returns a connection whose flows have all arrived, after a welcome was
  // sent on each flow. Returns nothing if there is no such connection.
  std::optional<PendingConnection> TakeConnection(int64_t now_ns);
  // Returns why a connection could not be accepted, or nothing if none failed since the last call.
  std::optional<std::string> TakeFailure();

  // Makes a pool thread accept flows from now on. The thread passes reconnecting flows of
  // `connection` to `receiver`.
  void Serve(const std::shared_ptr<Pool>& pool, uint64_t connection, Receiver* receiver);
  // Marks the connection as ended. Flows that reconnect to the connection are refused.
  void StopServing(uint64_t connection) noexcept;
  // Stops accepting new connections. Flows of existing connections can still reconnect.
  void CloseToNew() noexcept;

  void Ready(uint32_t /*events*/) override { ready_ = true; }
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;
  void OnException(const char* what) noexcept override;

 private:
  // An accepted socket whose hello (the first frame of a flow) has not arrived completely.
  struct PendingHandshake {
    Descriptor socket;
    int64_t since_ns = 0;
    std::array<std::byte, kHelloBytes> hello = {};
    size_t filled = 0;
  };
  struct ServedConnection {
    Receiver* receiver = nullptr;  // null while the receiver is being created
    bool ended = false;
  };

  Acceptor(const ConnectionContext& context, std::string device);
  bool Advance(int64_t now_ns);
  bool AcceptWaiting(int64_t now_ns, int* shortage);
  bool ReadHellos(int64_t now_ns);
  void MakeRoomForOne(int64_t now_ns);
  // Returns true while the hello is incomplete, and false if the handshake has ended, successfully
  // or not.
  bool ReadHello(PendingHandshake& handshake, int64_t now_ns);
  void Assign(const Hello& hello, Descriptor socket, int64_t now_ns);
  void DropDeadFlows(int64_t now_ns);
  void HandleShortage(int error, int64_t now_ns);
  void Refuse(PendingConnection& pending, uint16_t flows);
  static void SendWelcome(Descriptor& socket, const Welcome& welcome);

  ConnectionContext context_;
  std::string device_;
  Invitation invitation_;
  std::vector<Descriptor> listening_;
  std::shared_ptr<SpareDescriptor> spare_ = SpareDescriptor::Get();

  std::mutex mutex_;
  std::vector<PendingHandshake> handshakes_;  // oldest first
  std::map<uint64_t, PendingConnection> pending_;
  std::map<uint64_t, ServedConnection> served_;
  std::map<uint64_t, uint16_t> refused_;  // key: connection; value: number of flows for a retry
  std::optional<std::string> failure_;
  bool open_to_new_ = true;
  bool other_release_logged_ = false;
  bool unwatched_ = false;                 // epoll could not watch the listening sockets
  bool backlog_left_ = false;              // connections are left in a listen backlog
  std::atomic<bool> poll_needed_ = false;  // work is left that epoll will not report
  int64_t exhausted_since_ns_ = 0;
  int64_t checked_ns_ = 0;
  uint64_t rejected_ = 0;

  std::shared_ptr<Pool> pool_;
  std::shared_ptr<PoolThread> worker_;
  uint64_t task_number_ = 0;
  bool ready_ = false;  // epoll reported a connection
  int64_t worked_ns_ = 0;
};

}  // namespace nccltune::net
