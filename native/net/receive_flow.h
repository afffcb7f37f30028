// SPDX-License-Identifier: Apache-2.0
//
// The flows of a receiver. One that dies waits until its peer comes back through the door.
#ifndef NCCLTUNE_NET_RECEIVE_FLOW_H_
#define NCCLTUNE_NET_RECEIVE_FLOW_H_

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "net/flow_stats.h"
#include "net/pool.h"
#include "net/receiver.h"
#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

class Incoming : public Task {
 public:
  Incoming(Receiver& receiver, Worker& worker, Socket socket)
      : receiver_(receiver),
        stats_(receiver.stats().NextFlow()),
        socket_(std::move(socket)),
        worker_(worker) {
    stats_.CameUp(socket_.fd());
  }

  void Start(uint32_t events);
  void Stop() { worker_.Remove(number_); }
  // Another socket takes this one's place. From any thread.
  void Adopt(Socket socket);

  void Ready(uint32_t events) override { told_ |= events; }
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;
  bool Plenty(int64_t now_ns) const override;

  Worker& worker() const { return worker_; }
  bool up() const { return up_.load(); }

  // Says bye.
  void Close(Pool& pool);

 protected:
  bool adopted() const { return adopted_.load(); }
  virtual bool WorkUp(int64_t now_ns) = 0;
  virtual int64_t NextUpNs() const = 0;
  // The socket is another one, or none.
  virtual void Reset() = 0;

  void Down(int64_t now_ns, bool bye, const std::string& why);
  void SendNote(const Note& note);

  Receiver& receiver_;
  FlowStats stats_;
  Socket socket_;
  uint32_t told_ = 0;

 private:
  Worker& worker_;
  uint64_t number_ = 0;
  uint32_t events_ = 0;
  int64_t tick_ns_ = 0;
  std::atomic<bool> up_ = true;
  std::vector<std::byte> notes_left_;  // what the socket did not take of a note

  std::atomic<bool> adopted_ = false;
  std::mutex adopt_mutex_;
  Socket adopt_;
};

// A bulk flow.
class ReceiveFlow final : public Incoming {
 public:
  static constexpr uint32_t kEvents = EPOLLIN | EPOLLRDHUP;
  static constexpr uint64_t kNone = UINT64_MAX;
  using Incoming::Incoming;

  // The request that this flow waits for to be posted.
  uint64_t held() const { return held_.load(); }

 protected:
  bool WorkUp(int64_t now_ns) override;
  int64_t NextUpNs() const override;
  void Reset() override;

 private:
  enum class Step { kMore, kWait, kDown };
  Step Read(int64_t now_ns);
  Step ReadHeader(int64_t now_ns);
  Step ReadBody(int64_t now_ns);
  Step After(const Moved& moved, size_t wanted, int64_t now_ns);
  Step HeaderDone(int64_t now_ns);
  Step Place(int64_t now_ns);
  Step Wait(int64_t now_ns);
  Step BodyDone(bool placed, size_t header_filled, int64_t now_ns);
  bool Acknowledge();

  enum class At { kHeader, kHeld, kBody };
  At at_ = At::kHeader;
  std::array<std::byte, kDataHeaderBytes> header_bytes_ = {};
  size_t header_filled_ = 0;
  DataHeader header_;
  size_t body_filled_ = 0;
  bool readable_ = true;
  bool gone_ = false;  // epoll told of an end
  bool stashing_ = false;
  std::vector<std::byte> own_;  // what is not to be written to the application's buffer
  uint64_t frames_ = 0;
  uint64_t frames_told_ = 0;
  uint64_t bytes_untold_ = 0;
  int64_t waiting_told_ns_ = 0;
  std::atomic<uint64_t> held_ = kNone;
};

// The flow of small messages. The application's thread reads it, when it tests.
class ExpressIn final : public Incoming {
 public:
  // That there is something to read wakes no thread.
  static constexpr uint32_t kEvents = EPOLLRDHUP;
  using Incoming::Incoming;

  // Reads what there is.
  void Look();

  void Ready(uint32_t events) override;
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  int64_t NextUpNs() const override;
  void Reset() override;

 private:
  void ReadAll(int64_t now_ns);
  void Acknowledge(int64_t now_ns);
  // False: nothing more is there, or the flow is down.
  bool ReadMore(int64_t now_ns);
  // False: the rest has to wait.
  bool Parse(int64_t now_ns);
  void BeginLarge(const DataHeader& header, Receiver::Place place);

  mutable std::mutex mutex_;
  // Of a message that is too large for it, what follows is read to where it belongs.
  std::array<std::byte, 4096 + kDataHeaderBytes> bytes_ = {};
  size_t begin_ = 0;
  size_t end_ = 0;
  bool large_ = false;
  bool large_stashed_ = false;
  DataHeader large_header_;
  size_t large_filled_ = 0;
  std::vector<std::byte> own_;
  bool gone_ = false;  // epoll told of an end
  uint64_t frames_ = 0;
  uint64_t frames_told_ = 0;
  uint64_t bytes_untold_ = 0;
  int64_t untold_since_ns_ = 0;
  int64_t look_ns_ = 0;  // the worker's own
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_RECEIVE_FLOW_H_
