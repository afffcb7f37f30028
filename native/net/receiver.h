// SPDX-License-Identifier: Apache-2.0
//
// The receiving end of a connection: what is posted, what of it has arrived, and when a buffer is
// the application's again.
#ifndef NCCLTUNE_NET_RECEIVER_H_
#define NCCLTUNE_NET_RECEIVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/arrivals.h"
#include "net/connection_stats.h"
#include "net/door.h"
#include "net/pool.h"
#include "net/request.h"
#include "net/transport.h"
#include "net/wire.h"

namespace nccltune::net {

class ReceiveFlow;
class ExpressIn;

struct ReceiveSlot : Request {
  std::byte* data = nullptr;
  uint64_t capacity = 0;
  uint64_t total = 0;  // known with the first frame
  uint64_t missing = 0;
  bool known = false;
  bool all = false;
  bool busy = false;
  // Parts of the buffer that a thread writes, by their offset and length.
  std::vector<std::pair<uint64_t, uint64_t>> pins;
  Arrivals arrivals;
};

class Receiver {
 public:
  struct Parts {
    Surroundings surroundings;
    std::shared_ptr<Pool> pool;
    std::shared_ptr<Door> door;
    Party party;
    std::string device;
  };

  explicit Receiver(Parts parts);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  abi::Result Post(void* data, size_t bytes, Request** request);
  abi::Result Test(Request* request, bool* done, size_t* bytes);

  // A flow that came back through the door. It may be called while the old one still stands.
  void Adopt(uint16_t flow, Socket socket);

  // For flows -------------------------------------------------------------------------------------

  enum class Place {
    kPosted,
    kLater,  // the application has not posted it yet
    kDone,   // it is here already
    kWrong,  // the peer must not send this
  };
  Place Locate(const DataHeader& header);

  // Where the chunk goes in memory (null for what is empty), until Unpin; nothing where it is not
  // wanted. For one read that does not wait: who has another copy of the chunk waits here for it.
  std::optional<std::byte*> Pin(const DataHeader& header);
  // `arrived`: the chunk is there to its end.
  void Unpin(const DataHeader& header, bool arrived);
  // A chunk that is here already, in bytes of ours.
  void Put(const DataHeader& header, const std::byte* bytes);

  // A posted request waits and nothing has come for a while: what is held may be in the way.
  bool starved(int64_t now_ns) const;
  bool Deep(int64_t now_ns) const { return depth_.Deep(now_ns); }
  // Keeps a chunk of a request that is not posted. False: there is no room.
  bool Stash(const DataHeader& header, std::vector<std::byte> bytes);

  // Requests with a smaller number are posted. Costs no lock.
  uint64_t posted() const { return posted_.load(); }
  bool failed() const { return error_.load() != abi::kSuccess; }
  // A flow came up or went down. `bye`: the peer meant it.
  void FlowsChanged(int64_t now_ns, bool bye, const std::string& why);
  void Tick(int64_t now_ns);

  const Surroundings& surroundings() const { return surroundings_; }
  Counters& counters() { return counters_; }
  ConnectionStats& stats() { return stats_; }

 private:
  ReceiveSlot& SlotOf(uint64_t number) { return slots_[number % kSlots]; }
  Place Locate(ReceiveSlot& slot, const DataHeader& header);
  void Mark(ReceiveSlot& slot, const DataHeader& header);
  void Settle(ReceiveSlot& slot);
  void Fail(abi::Result result, const std::string& why);
  abi::Result Refuse();

  Surroundings surroundings_;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<Door> door_;
  uint64_t connection_;
  std::string device_;
  std::string peer_;
  ConnectionStats stats_;
  Counters& counters_ = stats_.counters();

  std::mutex mutex_;
  std::vector<ReceiveSlot> slots_;
  uint64_t next_ = 0;
  size_t held_requests_ = 0;  // requests that NCCL has
  struct Stashed {
    DataHeader header;
    std::vector<std::byte> bytes;
  };
  std::multimap<uint64_t, Stashed> stash_;
  size_t stash_bytes_ = 0;
  int64_t all_down_ns_ = 0;
  std::string down_why_;
  std::string failure_;  // that nobody was warned of

  alignas(kCacheLine) std::atomic<size_t> waiting_ = 0;  // posted requests that are not complete
  alignas(kCacheLine) std::atomic<uint64_t> posted_ = 0;
  std::atomic<int64_t> arrived_ns_ = 0;
  Depth depth_;
  std::atomic<abi::Result> error_ = abi::kSuccess;

  std::vector<std::unique_ptr<ReceiveFlow>> flows_;
  std::unique_ptr<ExpressIn> express_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_RECEIVER_H_
