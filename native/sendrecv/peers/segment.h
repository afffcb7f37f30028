// SPDX-License-Identifier: Apache-2.0
// The segment: the shared-memory file of a communicator on one host. Each rank of the host takes a
// place in the file, which is the index of its RankRecord. A rank takes its place before NCCL
// creates the communicator, and NCCL's handshake waits for all ranks. So after the handshake all
// ranks of the host are in the file.
//
// A rank's record has the table of the memory that it exports to its peers. Each entry states which
// peers have mapped it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/token.h"
#include "sendrecv/cuda/cuda_driver.h"
#include "sendrecv/identity.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/lane/message_lane.h"

namespace nccltune::sendrecv {

// Most ranks of one communicator on one host.
inline constexpr size_t kMaxLocalRanks = 64;

// Memory that a rank exports: one allocation, or a span of adjacent cuMemMap chunks. Both sides
// refer to the entry by its number.
struct ExportEntry {
  // 0 if the entry is free. Written last, so that a reader of the number also sees the other
  // fields.
  std::atomic<uint64_t> number = 0;
  // The number of chunks, whose file descriptors are sent through the mailbox. 0 if peers map the
  // memory by `handle` instead.
  uint32_t chunks = 0;
  cu::IpcMemory handle = {};
  uint64_t base = 0;  // address in the exporting process
  uint64_t bytes = 0;
  // Sets of peers, with one bit for each place. `wanted`: this rank has asked the peer to map the
  // memory. `imported`: the peer has mapped it. `refused`: the peer could not map it.
  std::atomic<uint64_t> wanted = 0;
  std::atomic<uint64_t> imported = 0;
  std::atomic<uint64_t> refused = 0;
};

// What a rank publishes about itself. The index of its record in the file is the rank's place.
struct RankRecord {
  static constexpr size_t kExports = 256;
  // Version of the protocol between two ranks. NCCL carries all messages between ranks with
  // different versions.
  static constexpr uint32_t kProtocol = 2;

  enum State : uint32_t { kEmpty, kJoined, kLeft };
  std::atomic<uint32_t> state = kEmpty;
  std::atomic<int32_t> rank = -1;  // -1 until NCCL has assigned the rank
  // Whether this rank has stopped using the communicator. kEnded: its application has ended the
  // communicator. kFailed: an error has occurred.
  enum Abandoned : uint32_t { kUsed, kEnded, kFailed };
  std::atomic<uint32_t> abandoned = kUsed;
  uint32_t protocol = 0;
  ProcessToken process;
  uint64_t host = 0;
  uint64_t context = 0;  // the rank's CUDA context, a pointer in its process
  cu::Uuid gpu = {};
  // A hash of the settings that must be equal on both ranks.
  uint64_t settings_hash = 0;
  uint64_t from = 0;  // NCCLTUNE_SENDRECV_FROM of this rank, in bytes
  // Part of the address of the rank's mailbox (mailbox.h). Zero if the rank has no mailbox.
  Token mailbox = {};
  // Incremented with each change of `exports`, and whenever chunks were sent to a peer.
  alignas(64) std::atomic<uint64_t> exports_changed = 0;
  std::array<ExportEntry, kExports> exports;
};

// The beginning of the file. The lanes follow. The file is all zero at first.
struct SegmentMemory {
  // The layout version is also part of the file's name, so releases with different layouts use
  // different files.
  static constexpr uint32_t kLayout = 7;
  static constexpr uint64_t kHeader = uint64_t{0x6e747372} << 32 | kLayout;  // "ntsr"

  std::atomic<uint64_t> header = 0;
  std::atomic<uint32_t> places = 0;  // number of places that ranks have taken
  // The gate (gate.h) of the lane from each rank to each other. The index is the sender's place *
  // kMaxLocalRanks + the receiver's place.
  alignas(64) std::array<GateMemory, kMaxLocalRanks * kMaxLocalRanks> gates;
  std::array<RankRecord, kMaxLocalRanks> records;
};

// Other processes map this layout. If one of these numbers changes, increment kLayout.
static_assert(sizeof(GateMemory) == 16);
static_assert(sizeof(ExportEntry) == 120);
static_assert(offsetof(ExportEntry, handle) == 12 && offsetof(ExportEntry, base) == 80);
static_assert(offsetof(ExportEntry, wanted) == 96);
static_assert(sizeof(RankRecord) == 30912);
static_assert(offsetof(RankRecord, protocol) == 12 && offsetof(RankRecord, process) == 16);
static_assert(offsetof(RankRecord, host) == 32 && offsetof(RankRecord, context) == 40);
static_assert(offsetof(RankRecord, gpu) == 48 && offsetof(RankRecord, settings_hash) == 64);
static_assert(offsetof(RankRecord, from) == 72 && offsetof(RankRecord, mailbox) == 80);
static_assert(offsetof(RankRecord, exports_changed) == 128 && offsetof(RankRecord, exports) == 136);
static_assert(offsetof(SegmentMemory, places) == 8 && offsetof(SegmentMemory, gates) == 64);
static_assert(offsetof(SegmentMemory, records) ==
              64 + kMaxLocalRanks * kMaxLocalRanks * sizeof(GateMemory));

// A segment file that this process has open. Ranks in one process share the object.
class Segment {
 public:
  // Opens the file for `key`, which is equal on all ranks of the communicator and on no others.
  // Returns null and the reason in `why` if the file cannot be used: it cannot be created, belongs
  // to another user, has another layout, or has no room. Removes files of processes that were
  // killed.
  static std::shared_ptr<Segment> Open(std::string_view key, std::string* why);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentMemory& memory() const { return *memory_; }
  const std::string& name() const { return name_; }

  // Takes a place for one more rank and returns it. Returns nothing and the reason in `why` if that
  // fails. The caller owns the record at that place from then on.
  std::optional<size_t> Join(std::string* why);
  size_t places() const { return std::min<size_t>(memory_->places.load(), kMaxLocalRanks); }
  // Locks the places of this process again. The locks of a process end when it closes any
  // descriptor of the file, for example a debugging module that opens all of /proc/self/fd.
  // Thread-safe.
  void KeepPlaces();
  // Returns false if the rank's process has ended without marking its record as left. Returns true
  // in all other cases, also for a record that is empty or left. A false result may be wrong until
  // the rank calls KeepPlaces.
  bool IsAlive(size_t place);

  // A mapped lane (message_lane.h): its shared state, and the checksums that follow it in the file.
  struct LaneMapping {
    LaneMemory* memory = nullptr;
    Sums* sums = nullptr;
  };
  // The parts of a lane that are needed beside its slots. Equal on both sides.
  struct LaneParts {
    bool graphs = false;
    bool sums = false;
  };
  // Maps the lane from the rank at place `from` to the rank at place `to`, and registers it with
  // CUDA. Returns null pointers and the reason in `why` if this process cannot use the lane.
  LaneMapping MapLane(const CudaDriver& driver, size_t from, size_t to, LaneParts parts,
                      std::string* why);
  // Returns the gate of a lane, where both sides agree which messages have slots.
  GateMemory& GateOf(size_t from, size_t to) const {
    return memory_->gates[from * kMaxLocalRanks + to];
  }

  // Removes the file's name. A rank that has not opened the file yet cannot join after this.
  void Unlink();

 private:
  struct Mapped;
  explicit Segment(std::string name);
  bool OpenFile(std::string* why);
  bool IsOurs(std::string* why) const;
  bool MapHead(std::string* why);
  bool ReserveMemory(size_t begin, size_t bytes, std::string* why);
  bool TakeShare(size_t bytes, std::string* why);
  bool LockPlace(size_t place);

  std::string name_;
  int file_ = -1;
  SegmentMemory* memory_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, std::unique_ptr<Mapped>> lanes_;
  uint64_t joined_here_ = 0;  // a bit for each place that this process has taken
  uint64_t taken_ = 0;        // bytes of shared memory that count for this process
};

enum class ExportStatus : uint8_t {
  kMapped,   // the peer has mapped the memory
  kPending,  // exported; the peer has not mapped it yet
  kRefused,  // the peer could not map the memory
  // The memory cannot be shared: it is of a memory pool, or was not created for sharing (cuMemMap).
  kUnshareable,
  kNoMemory,  // not GPU memory of this process, or it spans several allocations
  kTableFull,
};

// The state of the memory of a message, and where the peer finds it.
struct ExportLookup {
  ExportStatus status = ExportStatus::kNoMemory;
  uint64_t number = 0;  // number of the exported entry
  uint64_t offset = 0;
};

// Returns the bit for a rank's place in ExportEntry::wanted, imported and refused.
inline uint64_t PlaceBit(size_t place) { return uint64_t{1} << place; }

class ExportTable {
 public:
  explicit ExportTable(RankRecord& record) : record_(record) {}

  // Returns a free entry to fill in, or null if all are in use.
  ExportEntry* FindFree();
  // Makes an entry visible to peers after it is filled in.
  void Publish(ExportEntry* entry);
  void Withdraw(ExportEntry* entry);
  // Makes peers read the table at their next call.
  void NotifyPeers() { ++record_.exports_changed; }
  // Asks a peer to map the entry, unless the peer was asked before. Returns whether the peer has
  // mapped or refused the entry, with the entry's number and `offset`.
  ExportLookup Request(ExportEntry* entry, uint64_t offset, size_t peer);

 private:
  RankRecord& record_;
  size_t next_ = 0;
  uint64_t made_ = 0;
};

}  // namespace nccltune::sendrecv
