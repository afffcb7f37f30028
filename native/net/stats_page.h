// SPDX-License-Identifier: Apache-2.0
//
// The memory in which a connection counts. `nccltune net-stats` reads it meanwhile: it is a memfd,
// which that finds under its name in /proc/PID/fd. To be read costs the writers nothing.
//
// The layout is read by a program that may be of another release
// (src/nccltune/native/net_stats.py): what is there keeps its place and meaning, new words take
// reserved ones or come behind, as the sizes in the head allow. Anything else is another
// kStatsLayout.
#ifndef NCCLTUNE_NET_STATS_PAGE_H_
#define NCCLTUNE_NET_STATS_PAGE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "net/counters.h"

namespace nccltune::net {

inline constexpr const char* kStatsName = "nccltune-net-stats";
inline constexpr std::string_view kStatsMagic = "ncclstat";
inline constexpr uint64_t kStatsLayout = 1;

using Word = std::atomic<uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

// Text for a reader that comes at any time, ended by a zero; cut where it is longer.
template <size_t kBytes>
class SharedText {
 public:
  void Set(std::string_view text) {
    std::array<char, kBytes> bytes = {};
    text.copy(bytes.data(), kBytes - 1);
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + 8 * i, 8);
      words_[i].store(word);
    }
  }

  std::string Get() const {
    std::array<char, kBytes + 1> bytes = {};
    for (size_t i = 0; i < words_.size(); ++i) {
      const uint64_t word = words_[i].load();
      std::memcpy(bytes.data() + 8 * i, &word, 8);
    }
    return bytes.data();
  }

 private:
  static_assert(kBytes % 8 == 0);
  std::array<Word, kBytes / 8> words_ = {};
};

enum class StatsRole : uint64_t { kSends = 0, kReceives = 1 };

struct ConnectionBlock {
  Word magic = 0;  // last of all: what has it is complete
  Word layout = kStatsLayout;
  Word page_bytes = 0;
  Word connection_bytes = 0;  // the first flow is behind so many
  Word flow_bytes = 0;        // from one flow to the next
  Word flows = 0;             // the express flow first
  Word pid = 0;               // as the process sees itself: after a fork there are two with this fd
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
  // Odd while the two ends are written.
  Word sequence = 0;
  Word up = 0;
  SharedText<64> local;
  SharedText<64> peer;
  Word bytes = 0;       // a sender's: acknowledged; a receiver's: read
  Word chunks = 0;      // the same; of the express flow messages
  Word taken_over = 0;  // chunks that another flow had before; a sender's
  Word duplicates = 0;  // chunks that had arrived already; a receiver's
  Word deaths = 0;
  Word dials = 0;        // attempts to come back; a sender's
  Word undelivered = 0;  // bytes; a sender's
  Word rate = 0;        // bytes per second that it delivers when it has something to do; a sender's
  Word min_rtt_ns = 0;  // of the socket that is up, as the kernel has seen it
  Word retransmits = 0;  // the same
  Word looks = 0;        // at it, about ten a second, while its connection had work; a sender's
  Word path_looks = 0;   // of these: the peer's kernel did not have all of it yet
  std::array<Word, 2> reserved = {};
};
static_assert(offsetof(FlowBlock, local) == 16);
static_assert(offsetof(FlowBlock, peer) == 80);
static_assert(offsetof(FlowBlock, bytes) == 144);
static_assert(offsetof(FlowBlock, path_looks) == 232);
static_assert(sizeof(FlowBlock) == 256);

class StatsPage {
 public:
  // For so many flows. Throws std::bad_alloc and nothing else.
  explicit StatsPage(size_t flows);
  ~StatsPage();
  StatsPage(const StatsPage&) = delete;
  StatsPage& operator=(const StatsPage&) = delete;

  ConnectionBlock& connection() const { return *connection_; }
  std::span<FlowBlock> flows() const { return flows_; }

  // From now on readers take it for complete.
  void Publish();

  // Why nobody else can read it; empty: they can.
  const std::string& hidden() const { return hidden_; }

 private:
  void* Shared(size_t bytes);

  int fd_ = -1;
  size_t bytes_;
  void* memory_ = nullptr;
  ConnectionBlock* connection_ = nullptr;
  std::span<FlowBlock> flows_;
  std::string hidden_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_STATS_PAGE_H_
