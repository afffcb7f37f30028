// SPDX-License-Identifier: Apache-2.0
// The receiving end of a connection. Records which requests are posted and which bytes have
// arrived. Completes a request when all its bytes have arrived and none of our threads writes to
// its buffer. A request arrives in chunks on several flows (TCP connections).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/acceptor.h"
#include "net/connection_failure.h"
#include "net/connection_stats.h"
#include "net/pool.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class ReceiveFlow;
class ExpressReceiveFlow;

struct ReceiveSlot : TransferRequest {
  std::byte* data = nullptr;
  uint64_t capacity = 0;
  uint64_t total = 0;    // size of the message; set by the first frame
  uint64_t missing = 0;  // bytes that have not arrived
  bool known = false;    // `total` is set
  bool all = false;      // all bytes have arrived
  bool busy = false;
  // Offset and length of each part of the buffer to which a thread is writing.
  std::vector<std::pair<uint64_t, uint64_t>> pins;
  Arrivals arrivals;
};

class Receiver {
 public:
  struct Resources {
    ConnectionContext context;
    std::shared_ptr<Pool> pool;
    std::shared_ptr<Acceptor> acceptor;
    PendingConnection pending;
    std::string device;
  };

  explicit Receiver(Resources resources);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Starts the flows on the pool's threads. Returns 0 or the error of epoll_ctl.
  [[nodiscard]] int Start();

  abi::Result Post(void* data, size_t bytes, TransferRequest** request);
  abi::Result Test(TransferRequest* request, bool* done, size_t* bytes);

  // Replaces the socket of a flow that reconnected through the acceptor. The old socket may still
  // be open.
  void Adopt(uint16_t flow, Descriptor socket);

  // The functions below are called by the flows.

  // The state of a chunk whose header has arrived.
  enum class ChunkState {
    kPosted,     // its request is posted
    kNotPosted,  // its request is not posted yet
    kArrived,    // NCCL has seen its request complete, so the chunk is a late copy
    kInvalid,    // the peer violated the protocol
  };
  ChunkState Locate(const DataHeader& header);

  // Returns the chunk's place in the application's buffer, or nothing if the chunk is no longer
  // needed. The place is valid until Unpin; it may be null for an empty chunk. Call Unpin after one
  // non-blocking read, even if it has not brought the whole chunk: a thread with another copy of
  // the chunk waits in Pin.
  std::optional<std::byte*> Pin(const DataHeader& header);
  // Releases the place that Pin returned. `arrived`: the whole chunk is in the buffer.
  void Unpin(const DataHeader& header, bool arrived);
  // Copies a complete chunk from our memory to its place in the application's buffer.
  void Put(const DataHeader& header, const std::byte* bytes);

  // Returns whether a request is posted but nothing has arrived for 20 ms. Its data may then be on
  // a flow that is blocked by a chunk of a later request.
  bool stalled(int64_t now_ns) const;
  bool IsDeep(int64_t now_ns) const { return depth_.IsDeep(now_ns); }
  // Keeps a chunk in our own memory until its request is posted. If the request was posted in the
  // meantime, copies the chunk to the application's buffer. Returns false if the limit of that
  // memory (`stash_bytes`) is reached.
  bool Stash(const DataHeader& header, std::vector<std::byte> bytes);

  // Returns the number of posted requests. Requests are numbered from 0, so all lower numbers are
  // posted. Takes no lock.
  uint64_t posted() const { return posted_.load(); }
  bool failed() const { return failure_.failed(); }
  // Called after a flow came up or went down. `bye`: the peer closed the flow regularly.
  void FlowsChanged(int64_t now_ns, bool bye, const SocketEnd& end);
  void Tick(int64_t now_ns);
  // Fails the connection after an exception. `what` is the exception's text.
  void FailByException(const char* what) noexcept;

  // Returns the number of TCP connections, including the express flow.
  size_t flows() const { return flows_.size() + 1; }
  const ConnectionContext& context() const { return context_; }
  Counters& counters() { return counters_; }
  ConnectionStats& stats() { return stats_; }

 private:
  ReceiveSlot& SlotOf(uint64_t number) { return slots_[number % kSlots]; }
  ChunkState Locate(ReceiveSlot& slot, const DataHeader& header);
  void Mark(ReceiveSlot& slot, const DataHeader& header);
  void CompleteIfDone(ReceiveSlot& slot);
  void Fail(abi::Result result, std::string_view why) noexcept;
  abi::Result Refuse();

  ConnectionContext context_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Acceptor> acceptor_;
  uint64_t connection_;
  ConnectionStats stats_;
  Counters& counters_ = stats_.counters();

  std::mutex mutex_;
  std::vector<ReceiveSlot> slots_;
  uint64_t next_ = 0;
  size_t held_requests_ = 0;  // requests whose completion NCCL has not seen
  struct Stashed {
    DataHeader header;
    std::vector<std::byte> bytes;
  };
  std::multimap<uint64_t, Stashed> stash_;
  size_t stash_bytes_ = 0;

  alignas(kCacheLine) std::atomic<size_t> waiting_ = 0;  // posted requests that are not complete
  alignas(kCacheLine) std::atomic<uint64_t> posted_ = 0;
  std::atomic<int64_t> arrived_ns_ = 0;
  RequestDepth depth_;
  alignas(kCacheLine) ConnectionFailure failure_;

  std::vector<std::unique_ptr<ReceiveFlow>> flows_;
  std::unique_ptr<ExpressReceiveFlow> express_;
};

}  // namespace nccltune::net
