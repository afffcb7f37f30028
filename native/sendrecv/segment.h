// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator that share a host tell each other: a file in shared memory that
// every rank opens before NCCL makes the communicator. NCCL's own meeting is then the proof that
// whoever is not in it is elsewhere, and all ranks see the same.
#ifndef NCCLTUNE_SENDRECV_SEGMENT_H_
#define NCCLTUNE_SENDRECV_SEGMENT_H_

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

#include "sendrecv/cuda_driver.h"
#include "sendrecv/lane.h"
#include "sendrecv/verify.h"

namespace nccltune::sendrecv {

// Ranks of one host in one communicator.
inline constexpr size_t kMostLocal = 64;

// Memory that a rank offers to others: an allocation, or chunks side by side. Its number is known
// to both sides.
struct Share {
  // 0: free. Written last, so that who reads it finds the rest.
  std::atomic<uint64_t> number = 0;
  // 0: the handle tells all. Otherwise descriptors of so many come by the mailbox.
  uint32_t chunks = 0;
  cu::IpcMemory handle = {};
  uint64_t base = 0;  // in its own process
  uint64_t bytes = 0;
  // A bit for each place.
  std::atomic<uint64_t> wanted = 0;
  std::atomic<uint64_t> imported = 0;
  std::atomic<uint64_t> refused = 0;
};

// What a rank tells of itself.
struct Card {
  static constexpr size_t kShares = 256;

  enum State : uint32_t { kNobody, kHere, kLeft };
  std::atomic<uint32_t> state = kNobody;
  std::atomic<int32_t> rank = -1;  // once it is known
  std::atomic<uint32_t> gave_up = 0;
  int64_t process = 0;
  uint64_t context = 0;  // a pointer of that process
  cu::Uuid gpu = {};
  // Of settings that both must have alike.
  uint64_t agreement = 0;
  uint64_t from = 0;  // bytes that it thinks are worth a copy engine
  // A share is new, or one is gone: counts.
  alignas(64) std::atomic<uint64_t> shares_changed = 0;
  std::array<Share, kShares> shares;
};

// Read by all; the first page of the file and on.
struct SegmentMemory {
  // Another layout has another name, so that two releases of ours do not meet.
  static constexpr uint32_t kLayout = 4;

  std::atomic<uint32_t> places = 0;  // taken
  enum LaneState : uint32_t { kUntouched, kThere, kNever };
  std::array<std::atomic<uint32_t>, kMostLocal * kMostLocal> lanes;
  std::array<Card, kMostLocal> cards;
};

// One for each file in a process: also where several ranks of a communicator are threads of it.
class Segment {
 public:
  // `key` is what all ranks of the communicator have alike and no other has. Null: no shared
  // memory, and `why` says why.
  static std::shared_ptr<Segment> Open(std::string_view key, std::string* why);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentMemory& memory() const { return *memory_; }
  const std::string& name() const { return name_; }

  // A place for one more rank, whose card is the caller's from then on.
  std::optional<size_t> Join(std::string* why);
  size_t places() const { return std::min<size_t>(memory_->places.load(), kMostLocal); }
  // The rank in a place is there, or has left as it should. False: its process has ended.
  bool Lives(size_t place);

  // What the memory of a lane begins with, and what lies behind it.
  struct LanePlace {
    LaneMemory* memory = nullptr;
    Sums* sums = nullptr;
  };
  // From one place to another; null: there is no memory for it, which both sides find alike unless
  // it `failed` here alone.
  LanePlace Lane(const CudaDriver& driver, size_t from, size_t to, bool* failed);

  // Everybody has opened it, or whoever has not will not meet the others in it.
  void Unlink();

 private:
  struct Mapped;
  explicit Segment(std::string name);
  bool OpenFile(std::string* why);
  bool FillFile(std::string* why);
  bool Fill(size_t begin, size_t bytes, std::string* why) const;
  bool Lock(size_t place);

  std::string name_;
  int file_ = -1;
  SegmentMemory* memory_ = nullptr;
  std::mutex mutex_;
  std::map<size_t, std::unique_ptr<Mapped>> lanes_;
  uint64_t joined_here_ = 0;  // places
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SEGMENT_H_
