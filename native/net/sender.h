// SPDX-License-Identifier: Apache-2.0
// The sending end of a connection. Cuts requests into chunks and records which chunks are
// acknowledged. Completes a request when the application may use its buffer again. A request is
// sent in chunks on several flows (TCP connections).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/connection_failure.h"
#include "net/connection_stats.h"
#include "net/dialer.h"
#include "net/flow_rate.h"
#include "net/pool.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class SendFlow;
class ExpressSendFlow;

// A part of a request. Its record is kept until the request is complete.
struct Chunk {
  uint64_t offset = 0;
  uint32_t length = 0;
  uint8_t copies = 0;  // how often the chunk was assigned to a flow
  bool acknowledged = false;
  int64_t due_ns = 0;  // from this time another flow may send a copy
};

struct SendSlot : TransferRequest {
  const std::byte* data = nullptr;
  uint64_t total = 0;
  uint64_t cut = 0;  // bytes that are cut into chunks
  size_t open = 0;   // chunks without an acknowledgement
  int pins = 0;      // frames whose bytes a flow or the kernel still reads
  bool busy = false;
  bool held = false;   // NCCL has not seen the request complete
  bool eager = false;  // sent on the express flow
  std::vector<Chunk> chunks;
  std::vector<std::byte> copy;  // copy of an eager message
};

// A chunk that was assigned to a flow.
struct FlowChunk {
  uint64_t number = 0;
  uint32_t chunk = 0;
  uint32_t length = 0;
  FlowRate::Mark mark;
};

class Sender {
 public:
  // The objects that the connector passes to the sender.
  struct Resources {
    ConnectionContext context;
    std::shared_ptr<Pool> pool;
    std::vector<Dialer> dialers;  // the express flow's dialer is first; all are ready
    std::string device;
  };

  explicit Sender(Resources resources);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // Starts the flows on the pool's threads. Returns 0 or the error of epoll_ctl.
  [[nodiscard]] int Start();

  abi::Result Send(const void* data, size_t bytes, TransferRequest** request);
  abi::Result Test(TransferRequest* request, bool* done, size_t* bytes);

  // The functions below are called by the flows.

  // A chunk with everything that a flow needs to send it. The request's buffer is pinned until
  // Written is called for the frame.
  struct AssignedChunk {
    FlowChunk frame;
    DataHeader header;
    const std::byte* data = nullptr;
    bool resent = false;  // the chunk was assigned to a flow before
  };
  // Returns the next chunk for a flow, or nothing if there is none.
  std::optional<AssignedChunk> Take(SendFlow& flow, int64_t now_ns);
  // Called when neither the flow nor the kernel reads the frame's buffer any more.
  void Written(const FlowChunk& frame);
  void Acknowledged(std::span<const FlowChunk> frames, int64_t now_ns);
  void AcknowledgedExpress(std::span<const uint64_t> numbers, int64_t now_ns);
  // Called when the peer reports that its application has not posted a receive. The peer is alive,
  // so this counts as progress.
  void PeerWaits(int64_t now_ns) { progress_ns_ = now_ns; }
  // Called when acknowledgements of the express flow are late. The unacknowledged messages of the
  // express flow and all new messages then take bulk flows, until the express flow gets an
  // acknowledgement or goes down.
  void ExpressIsLate();
  // Queue the unacknowledged chunks or messages of a flow that went down, so that other flows send
  // them.
  void Requeue(const std::deque<FlowChunk>& frames);
  void RequeueExpress(const std::deque<uint64_t>& numbers);
  // Returns whether all chunks of the frame's request are acknowledged. If so, a flow that still
  // sends the frame should copy the rest and release the buffer.
  bool IsBufferWanted(const FlowChunk& frame);

  // Returns whether there are bytes that no flow has taken.
  bool pending() const { return pending_.load() != 0; }
  // Returns whether bulk flows have unacknowledged frames.
  bool has_unacked_frames() const { return unacked_frames_.load() != 0; }
  bool IsDeep(int64_t now_ns) const { return depth_.IsDeep(now_ns); }
  // Returns how often the sender has asked the flows to release a buffer.
  uint64_t reclaims() const { return reclaims_.load(); }
  bool express_late() const { return express_late_.load(); }
  // Returns the time since which eager messages wait for an acknowledgement; INT64_MAX if none
  // waits.
  int64_t unacked_eager_since_ns() const { return unacked_eager_since_ns_.load(); }
  bool failed() const { return failure_.failed(); }
  // Called after a flow came up or went down. `gone`: the peer's listener no longer exists.
  void FlowsChanged(int64_t now_ns, bool gone, const SocketEnd& end);
  // Fails the connection after an exception. `what` is the exception's text.
  void FailByException(const char* what) noexcept;
  // Checks timeouts and slow flows. Called periodically by the threads of the flows.
  void Tick(int64_t now_ns);

  // Returns the number of TCP connections, including the express flow.
  size_t flows() const { return flows_.size() + 1; }
  const ConnectionContext& context() const { return context_; }
  Counters& counters() { return counters_; }
  ConnectionStats& stats() { return stats_; }

 private:
  SendSlot& SlotOf(uint64_t number) { return slots_[number % kSlots]; }
  SendSlot* Find(uint64_t number);
  std::optional<AssignedChunk> TakeRequeued();
  std::optional<AssignedChunk> TakeUncut(SendFlow& flow);
  std::optional<AssignedChunk> TakeLate(int64_t now_ns);
  bool IsEager(size_t bytes) const;
  void Begin(SendSlot& slot, const void* data, size_t bytes, bool eager);
  void UseCopy(SendSlot& slot);
  AssignedChunk Give(SendSlot& slot, uint32_t chunk);
  void AcknowledgeChunk(uint64_t number, uint32_t chunk);
  void RequeueChunk(uint64_t number, uint32_t chunk);
  void CompleteIfDone(SendSlot& slot);
  void Free(SendSlot& slot);
  // Wakes at most two threads, if too few awake threads are free for the pending bytes. A thread
  // that takes a chunk and leaves more wakes the next one.
  void WakeSome();
  void WakeAll();
  void Fail(abi::Result result, std::string_view why) noexcept;
  abi::Result Refuse();

  ConnectionContext context_;
  std::shared_ptr<Pool> pool_;
  ConnectionStats stats_;
  Counters& counters_ = stats_.counters();

  std::mutex mutex_;
  std::vector<SendSlot> slots_;
  uint64_t next_ = 0;         // number of the next request
  uint64_t oldest_ = 0;       // all requests with a lower number are done
  uint64_t uncut_ = 0;        // all requests with a lower number are cut into chunks
  size_t held_ = 0;           // requests whose completion NCCL has not seen
  size_t unacked_eager_ = 0;  // unacknowledged eager messages
  size_t unacked_eager_bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_;  // buffers to reuse for copies
  struct RequeuedChunk {
    uint64_t number;
    uint32_t chunk;
    uint32_t length;
  };
  std::deque<RequeuedChunk> requeued_;

  // Spinning threads read the following members all the time.
  alignas(kCacheLine) std::atomic<uint64_t> pending_ = 0;
  std::atomic<uint64_t> unacked_frames_ = 0;
  std::atomic<uint64_t> reclaims_ = 0;
  std::atomic<int64_t> progress_ns_ = 0;
  std::atomic<int64_t> unacked_eager_since_ns_ = INT64_MAX;
  std::atomic<bool> express_late_ = false;
  RequestDepth depth_;
  alignas(kCacheLine) ConnectionFailure failure_;

  std::vector<std::unique_ptr<SendFlow>> flows_;
  std::unique_ptr<ExpressSendFlow> express_;
};

}  // namespace nccltune::net
