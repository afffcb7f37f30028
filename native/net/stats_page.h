// SPDX-License-Identifier: Apache-2.0
// The shared memory with the counters of one end of a connection and of its flows (TCP
// connections). `nccltune net stats` reads the memory while the job runs. The memory is a memfd,
// which readers find by its name in /proc/PID/fd. Readers do not slow the writers down.
//
// The reader may be of another release (src/nccltune/native/net_stats.py). So existing words keep
// their place and meaning. New words replace reserved words or are added at the end, because
// ConnectionBlock contains the sizes. Any other change needs a new kStatsLayout.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/shared_page.h"

namespace nccltune::net {

// Counters of one end of a connection. A request is sent in chunks over several flows (TCP
// connections). Other programs read this memory, so new counters are added at the
// end.
struct Counters {
  std::atomic<uint64_t> requests = 0;  // requests started by NCCL
  std::atomic<uint64_t> messages = 0;  // requests that NCCL has seen complete
  std::atomic<uint64_t> bytes = 0;     // payload bytes of `messages`
  std::atomic<uint64_t> eager = 0;     // requests sent on the express flow; senders only
  std::atomic<uint64_t> chunks = 0;
  std::atomic<uint64_t> sent_again = 0;  // chunks resent because their flow died
  std::atomic<uint64_t> sent_twice =
      0;  // chunks that were late on one flow and sent on another too
  std::atomic<uint64_t> not_wanted = 0;    // duplicate chunks received
  std::atomic<uint64_t> stashed = 0;       // chunks received before their request was posted
  std::atomic<uint64_t> flow_ends = 0;     // flows that died
  std::atomic<uint64_t> flow_returns = 0;  // dead flows that reconnected
  // Sends with MSG_ZEROCOPY, as the kernel reported them.
  std::atomic<uint64_t> uncopied_bytes = 0;   // sent without a copy
  std::atomic<uint64_t> copy_reports = 0;     // sends that the kernel copied anyway
  std::atomic<uint64_t> zero_copy_drops = 0;  // flows that stopped using MSG_ZEROCOPY
};

inline constexpr const char* kStatsName = "nccltune-net-stats";
inline constexpr std::string_view kStatsMagic = "ncclstat";
inline constexpr uint64_t kStatsLayout = 1;

enum class StatsRole : uint64_t { kSends = 0, kReceives = 1 };

struct ConnectionBlock {
  Word magic = 0;  // written last: it marks a complete page
  Word layout = kStatsLayout;
  Word page_bytes = 0;
  Word connection_bytes = 0;  // offset of the first flow
  Word flow_bytes = 0;        // distance between two flows
  Word flows = 0;             // number of flows; the first is for small messages
  Word pid = 0;               // getpid() of the writer; a forked child has the memfd too
  Word role = 0;
  Word opened_ns = 0;  // CLOCK_MONOTONIC
  std::array<Word, 7> reserved = {};
  SharedText<32> version;
  SharedText<64> device;
  SharedText<96> peer;
  Counters counters;
  std::array<Word, 2> more_counters = {};
};
static_assert(offsetof(ConnectionBlock, version) == 128);
static_assert(offsetof(ConnectionBlock, device) == 160);
static_assert(offsetof(ConnectionBlock, peer) == 224);
static_assert(offsetof(ConnectionBlock, counters) == 320);
static_assert(sizeof(Counters) == 112);
static_assert(sizeof(ConnectionBlock) == 448);

struct alignas(64) FlowBlock {
  // Odd while `local` and `peer` are being written.
  Word sequence = 0;
  Word up = 0;
  SharedText<64> local;
  SharedText<64> peer;
  Word bytes = 0;       // sender: acknowledged; receiver: read
  Word chunks = 0;      // chunks in `bytes`; for the express flow, messages
  Word taken_over = 0;  // sender: chunks that another flow had sent before
  Word duplicates = 0;  // receiver: chunks that had arrived already
  Word deaths = 0;
  Word dials = 0;         // sender: attempts to reconnect
  Word undelivered = 0;   // sender: bytes without an acknowledgement
  Word rate = 0;          // sender: bytes per second while it has data to send
  Word min_rtt_ns = 0;    // of the current socket, measured by the kernel
  Word retransmits = 0;   // of the current socket, counted by the kernel
  Word samples = 0;       // sender: samples, about ten a second, while the connection had work
  Word path_samples = 0;  // sender: samples with bytes that the peer's kernel had not acknowledged
  std::array<Word, 2> reserved = {};
};
static_assert(offsetof(FlowBlock, local) == 16);
static_assert(offsetof(FlowBlock, peer) == 80);
static_assert(offsetof(FlowBlock, bytes) == 144);
static_assert(offsetof(FlowBlock, path_samples) == 232);
static_assert(sizeof(FlowBlock) == 256);

class StatsPage {
 public:
  // Creates a page for `flows` flows. Throws only std::bad_alloc.
  explicit StatsPage(size_t flows);

  ConnectionBlock& connection() const { return *connection_; }
  std::span<FlowBlock> flows() const { return flows_; }

  // Marks the page as complete for readers.
  void Publish();

  // Returns why other processes cannot read the page; empty if they can.
  const std::string& hidden() const { return memory_.hidden(); }

 private:
  SharedPage memory_;
  ConnectionBlock* connection_ = nullptr;
  std::span<FlowBlock> flows_;
};

}  // namespace nccltune::net
