// SPDX-License-Identifier: Apache-2.0
//
// Listening sockets, and the strangers before them. Who knows the token comes in; who says nothing,
// or something else, is dropped and counted, and nobody waits for him.
#ifndef NCCLTUNE_NET_DOOR_H_
#define NCCLTUNE_NET_DOOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "net/handle.h"
#include "net/pool.h"
#include "net/socket.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class Receiver;

// All flows of a new connection.
struct Party {
  uint64_t connection = 0;
  std::vector<Socket> sockets;  // by flow; the express flow's first
};

class Door final : public Task {
 public:
  // Null with `why` where it cannot listen.
  static std::shared_ptr<Door> Open(const Surroundings& surroundings, const Device& device,
                                    std::string* why);
  ~Door() override;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const Invitation& invitation() const { return invitation_; }
  const Surroundings& surroundings() const { return surroundings_; }
  const std::string& device() const { return device_; }

  // Looks who is there; a connection that is whole, and has been welcomed.
  std::optional<Party> TakeParty(int64_t now_ns);

  // From now on a worker looks, and hands flows of `connection` that come back to `receiver`.
  void Serve(const std::shared_ptr<Pool>& pool, uint64_t connection, Receiver* receiver);
  void StopServing(uint64_t connection);
  // New connections are not taken any more.
  void CloseToNew();

  void Ready(uint32_t /*events*/) override { told_ = true; }
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 private:
  struct Stranger {
    Socket socket;
    int64_t since_ns = 0;
    std::array<std::byte, kHelloBytes> said = {};
    size_t filled = 0;
  };

  Door(const Surroundings& surroundings, std::string device);
  bool Look(int64_t now_ns);
  bool AcceptAll(int64_t now_ns);
  // False: the stranger is dealt with.
  bool Hear(Stranger& stranger, int64_t now_ns);
  void LetIn(const Hello& hello, Socket socket, int64_t now_ns);
  static void Answer(Socket& socket, Verdict verdict);

  Surroundings surroundings_;
  std::string device_;
  Invitation invitation_;
  std::vector<Socket> listening_;

  std::mutex mutex_;
  std::vector<Stranger> strangers_;
  struct Arriving {
    Party party;
    size_t here = 0;
    int64_t since_ns = 0;
  };
  std::map<uint64_t, Arriving> arriving_;
  std::map<uint64_t, Receiver*> served_;  // null: its receiver is being made
  std::set<uint64_t> ended_;
  bool open_to_new_ = true;
  bool other_release_told_ = false;
  bool waiting_ = false;                // in a backlog
  std::atomic<bool> somebody_ = false;  // before the door
  uint64_t turned_away_ = 0;

  std::shared_ptr<Pool> pool_;
  Worker* worker_ = nullptr;
  uint64_t number_ = 0;
  bool told_ = false;  // by epoll
  int64_t looked_ns_ = 0;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DOOR_H_
