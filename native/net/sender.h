// SPDX-License-Identifier: Apache-2.0
//
// The sending end of a connection: what is still to be sent, what is owed until it is acknowledged,
// and when a buffer is the application's again.
#ifndef NCCLTUNE_NET_SENDER_H_
#define NCCLTUNE_NET_SENDER_H_

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/connection_stats.h"
#include "net/dialer.h"
#include "net/flow_rate.h"
#include "net/pool.h"
#include "net/request.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class SendFlow;
class ExpressOut;

// A piece of a request, until all that were given it have answered for it.
struct Chunk {
  uint64_t offset = 0;
  uint32_t length = 0;
  uint8_t copies = 0;
  bool acknowledged = false;
  int64_t due_ns = 0;  // after this another flow may send it as well
};

struct SendSlot : Request {
  const std::byte* data = nullptr;
  uint64_t total = 0;
  uint64_t cut = 0;  // bytes that are chunks already
  size_t open = 0;   // chunks that are not acknowledged
  int pins = 0;      // frames for which a flow, or the kernel, reads the buffer
  bool busy = false;
  bool held = false;   // NCCL has it
  bool eager = false;  // on the express flow
  std::vector<Chunk> chunks;
  std::vector<std::byte> copy;  // of an eager message
};

// A chunk that a flow was given.
struct Frame {
  uint64_t number = 0;
  uint32_t chunk = 0;
  uint32_t length = 0;
  FlowRate::Mark mark;
};

class Sender {
 public:
  // What the connector knows.
  struct Parts {
    Surroundings surroundings;
    std::shared_ptr<Pool> pool;
    std::vector<Dialer> dialers;  // the express flow's first; each is ready
    std::string device;
  };

  explicit Sender(Parts parts);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  abi::Result Send(const void* data, size_t bytes, Request** request);
  abi::Result Test(Request* request, bool* done, size_t* bytes);

  // For flows -------------------------------------------------------------------------------------

  // The next chunk for a flow with `undelivered` bytes; nothing where none is left. The request is
  // pinned until Written.
  struct Taken {
    Frame frame;
    DataHeader header;
    const std::byte* data = nullptr;
    bool again = false;  // another flow had it before
  };
  std::optional<Taken> Take(SendFlow& flow, int64_t now_ns);
  // The buffer is not read any more for this frame, neither by its flow nor by the kernel.
  void Written(const Frame& frame);
  void Acknowledged(std::span<const Frame> frames, int64_t now_ns);
  void AcknowledgedExpress(std::span<const uint64_t> numbers, int64_t now_ns);
  // The peer lives, but its application makes us wait.
  void PeerWaits(int64_t now_ns) { progress_ns_ = now_ns; }
  // Nothing is heard of the express flow: what it owes is sent by others, and so is what comes,
  // until something is heard.
  void ExpressIsLate();
  // A flow is gone: what it owes is sent by others.
  void Owed(std::span<const Frame> frames);
  void OwedExpress(std::span<const uint64_t> numbers);
  // All other copies of the frame's request are there: the rest of its bytes should be copied and
  // the buffer given back.
  bool WantedBack(const Frame& frame);

  // Bytes that no flow has taken.
  bool pending() const { return pending_.load() != 0; }
  // Something was given to bulk flows and is not acknowledged.
  bool owing() const { return owing_.load() != 0; }
  bool Deep(int64_t now_ns) const { return depth_.Deep(now_ns); }
  uint64_t reclaims() const { return reclaims_.load(); }
  bool express_late() const { return express_late_.load(); }
  // Since when eager messages wait for a word of the peer; INT64_MAX: none does.
  int64_t unheard_since_ns() const { return unheard_since_ns_.load(); }
  bool failed() const { return error_.load() != abi::kSuccess; }
  // A flow came up or went down. `gone`: the peer's listener is not there any more.
  void FlowsChanged(int64_t now_ns, bool gone, const std::string& why);
  // Looks at what only time tells. Called by one flow's worker.
  void Tick(int64_t now_ns);

  const Surroundings& surroundings() const { return surroundings_; }
  Counters& counters() { return counters_; }
  ConnectionStats& stats() { return stats_; }

 private:
  SendSlot& SlotOf(uint64_t number) { return slots_[number % kSlots]; }
  SendSlot* Find(uint64_t number);
  std::optional<Taken> TakeOwed();
  std::optional<Taken> TakeUncut(SendFlow& flow);
  std::optional<Taken> TakeLate(int64_t now_ns);
  bool IsEager(size_t bytes) const;
  void Begin(SendSlot& slot, const void* data, size_t bytes, bool eager);
  void UseCopy(SendSlot& slot);
  Taken Give(SendSlot& slot, uint32_t chunk);
  void AcknowledgeChunk(uint64_t number, uint32_t chunk);
  void OweAgain(uint64_t number, uint32_t chunk);
  void Settle(SendSlot& slot);
  void Free(SendSlot& slot);
  // Wakes two at most where too few are awake and idle: who takes a chunk and leaves some wakes the
  // next.
  void WakeSome();
  void WakeAll();
  void Fail(abi::Result result, const std::string& why);
  abi::Result Refuse();

  Surroundings surroundings_;
  std::shared_ptr<Pool> pool_;
  std::string device_;
  std::string peer_;
  ConnectionStats stats_;
  Counters& counters_ = stats_.counters();

  std::mutex mutex_;
  std::vector<SendSlot> slots_;
  uint64_t next_ = 0;    // number of the next request
  uint64_t oldest_ = 0;  // all before it are acknowledged
  uint64_t uncut_ = 0;   // all before it are cut
  size_t held_ = 0;      // requests that NCCL has
  size_t unheard_ = 0;   // copied messages without an acknowledgement
  size_t unheard_bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_;  // for copies
  struct Due {
    uint64_t number;
    uint32_t chunk;
    uint32_t length;
  };
  std::deque<Due> due_again_;
  int64_t all_down_ns_ = 0;  // since when no flow is up; 0: one is
  std::string down_why_;
  std::string failure_;  // that nobody was warned of

  // Workers that look for work read these all the time.
  alignas(kCacheLine) std::atomic<uint64_t> pending_ = 0;
  std::atomic<uint64_t> owing_ = 0;
  std::atomic<uint64_t> reclaims_ = 0;
  std::atomic<int64_t> progress_ns_ = 0;
  std::atomic<int64_t> unheard_since_ns_ = INT64_MAX;
  std::atomic<bool> express_late_ = false;
  Depth depth_;
  alignas(kCacheLine) std::atomic<abi::Result> error_ = abi::kSuccess;

  std::vector<std::unique_ptr<SendFlow>> flows_;
  std::unique_ptr<ExpressOut> express_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_SENDER_H_
