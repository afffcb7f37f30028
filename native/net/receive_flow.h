// SPDX-License-Identifier: Apache-2.0
// The flows of a receiver. A flow is one TCP connection. A connection of NCCL has one express flow
// for small messages and several bulk flows for large ones. A dead flow waits until its peer
// reconnects through the acceptor.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include "net/flow.h"
#include "net/pool.h"
#include "net/receiver.h"
#include "net/socket.h"
#include "net/wire.h"

namespace nccltune::net {

// The base of a receiver's flows. A flow that is down waits for a new socket.
class ReceiveFlowBase : public FlowBase<Receiver> {
 public:
  ReceiveFlowBase(Receiver& receiver, std::shared_ptr<PoolThread> worker, Descriptor socket)
      : FlowBase(receiver, std::move(worker), std::move(socket)) {}

  // Passes a new socket to the flow's thread, which replaces the old one. Callable from any thread.
  void Adopt(Descriptor socket);

  bool Work(int64_t now_ns) override;

  // Sends an acknowledgement that is due and a bye (the frame that ends a flow regularly), and
  // closes the socket.
  void Close(Pool& pool) noexcept;

 protected:
  bool adopted() const { return adopted_.load(); }
  int64_t NextDownNs() const override;
  // Resets the state after the socket was replaced or closed.
  virtual void Reset() = 0;
  struct FrameCounts {
    uint64_t arrived = 0;
    uint64_t acknowledged = 0;
  };
  // Returns the number of frames that have arrived, and the number that is acknowledged.
  virtual FrameCounts frame_counts() const = 0;

  void Down(int64_t now_ns, bool bye, const SocketEnd& end) override;
  // Sends a frame. Returns false if the socket is full; the frame is then not sent at all. Work is
  // called when the socket has room, and the caller sends a new frame then.
  bool SendReverseFrame(const ReverseFrame& frame);

 private:
  void TakeAdopted(int64_t now_ns);
  void WriteUnsent();

  std::vector<std::byte> unsent_frame_;  // unsent rest of a frame
  bool writable_ = true;                 // false after EAGAIN, until epoll reports EPOLLOUT

  std::atomic<bool> adopted_ = false;
  std::mutex adopt_mutex_;
  Descriptor adopt_;
};

// A bulk flow: receives large messages in chunks.
class ReceiveFlow final : public ReceiveFlowBase {
 public:
  static constexpr uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
  static constexpr uint64_t kNone = UINT64_MAX;
  using ReceiveFlowBase::ReceiveFlowBase;

  // Returns the number of the request that must be posted before this flow can continue, or kNone.
  uint64_t held() const { return held_.load(); }

 protected:
  bool WorkUp(int64_t now_ns) override;
  int64_t NextUpNs() const override;
  void Reset() override;
  FrameCounts frame_counts() const override {
    return {.arrived = frames_, .acknowledged = frames_acked_};
  }

 private:
  enum class Step { kMore, kWait, kDown };
  Step Read(int64_t now_ns);
  Step ReadHeader(int64_t now_ns);
  Step ReadBody(int64_t now_ns);
  Step CheckRead(const IoResult& moved, size_t wanted, int64_t now_ns);
  Step HeaderDone(int64_t now_ns);
  Step PlaceChunk(int64_t now_ns);
  Step Wait(int64_t now_ns);
  Step BodyDone(bool placed, size_t header_filled, int64_t now_ns);
  bool Acknowledge();

  enum class ReadState { kHeader, kHeld, kBody };
  ReadState state_ = ReadState::kHeader;
  std::array<std::byte, kDataHeaderBytes> header_bytes_ = {};
  size_t header_filled_ = 0;
  DataHeader header_;
  size_t body_filled_ = 0;
  bool readable_ = true;
  bool gone_ = false;  // epoll reported the end of the stream
  bool stashing_ = false;
  std::vector<std::byte> own_;  // a chunk that is not read into the application's buffer
  uint64_t frames_ = 0;
  uint64_t frames_acked_ = 0;
  uint64_t bytes_unacked_ = 0;
  int64_t waiting_sent_ns_ = 0;
  std::atomic<uint64_t> held_ = kNone;
};

// The flow for small messages. The application's thread reads the flow's data when it tests a
// request.
class ExpressReceiveFlow final : public ReceiveFlowBase {
 public:
  // EPOLLIN is not included, so that new data wakes no thread.
  static constexpr uint32_t kEvents = EPOLLOUT | EPOLLRDHUP;
  using ReceiveFlowBase::ReceiveFlowBase;

  // Reads the available data, up to a message that is not posted yet. Does nothing if another
  // thread uses the flow, or if the flow is down.
  void Poll();

  void Ready(uint32_t events) override;
  bool Work(int64_t now_ns) override;
  int64_t NextNs() const override;

 protected:
  bool WorkUp(int64_t now_ns) override;
  int64_t NextUpNs() const override;
  void Reset() override;
  FrameCounts frame_counts() const override {
    return {.arrived = frames_, .acknowledged = frames_acked_};
  }

 private:
  void ReadAll(int64_t now_ns);
  void Acknowledge(int64_t now_ns);
  // Reads into the buffer, and the rest of a large message directly to its destination. Returns
  // false if no more data is available, or if the flow is down.
  bool ReadMore(int64_t now_ns);
  // Handles the frames in the read buffer. Returns false if parsing must wait for a request to be
  // posted, if the memory for early data is full, or if the flow is down.
  bool Parse(int64_t now_ns);
  void BeginLarge(const DataHeader& header, Receiver::ChunkState place);

  mutable std::mutex mutex_;
  // The read buffer. Of a message that is larger, only the start is read into this buffer.
  std::array<std::byte, 4096 + kDataHeaderBytes> bytes_ = {};
  size_t begin_ = 0;
  size_t end_ = 0;
  bool large_ = false;
  bool large_stashed_ = false;
  DataHeader large_header_;
  size_t large_filled_ = 0;
  std::vector<std::byte> own_;
  bool gone_ = false;  // epoll reported the end of the stream
  uint64_t frames_ = 0;
  uint64_t frames_acked_ = 0;
  uint64_t bytes_unacked_ = 0;
  int64_t unacked_since_ns_ = 0;
  int64_t next_check_ns_ = 0;  // used by the pool thread only
};

}  // namespace nccltune::net
