// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator of the NCCL stand-in share: who is there, and a pipe of limited
// size from each to each. A memfd of one of them, which dies with those who have it.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_SEGMENT_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace nccltune::soft {

inline constexpr int kMostRanks = 64;

// Where a segment is found, by any process: what a unique id holds.
struct Place {
  uint64_t magic = 0;
  int process = 0;
  int fd = 0;
  uint64_t inode = 0;
  uint64_t time = 0;  // no two ids are alike
  uint64_t number = 0;
};

// One rank's word in a vote of which communicators come of this one.
struct Ballot {
  std::atomic<uint64_t> told{0};  // rounds
  std::atomic<uint64_t> placed{0};
  std::atomic<uint64_t> left{0};
  int color = 0;
  int key = 0;
  Place place;  // the leader's
};

struct Member {
  std::atomic<int> joined{0};  // 1: comes, 2: is there
  int gpu = 0;
  Ballot split;
  Ballot shrink;
};

// Bytes in order from one rank to another.
struct Pipe {
  std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> read{0};
  // Without what stands before each message.
  std::atomic<uint64_t> data_written{0};
  std::atomic<uint64_t> data_read{0};
};

struct SegmentHeader {
  uint64_t magic;
  uint64_t capacity;  // of a pipe
  std::atomic<int> ranks;
  Member members[kMostRanks];
};

// An end of a pipe.
class PipeEnd {
 public:
  // Above `capacity` a pipe has room for what stands before messages.
  static constexpr size_t kExtra = size_t{64} << 10;

  PipeEnd(Pipe& pipe, uint8_t* bytes, size_t capacity)
      : pipe_(pipe), bytes_(bytes), capacity_(capacity) {}

  // For `wanted` bytes: the part of them that can be moved at once, and where. Then tell.
  size_t ToWrite(size_t wanted, uint8_t*& at) const;
  void Wrote(size_t bytes, bool data);
  size_t ToRead(size_t wanted, uint8_t*& at) const;
  void Read(size_t bytes, bool data);

 private:
  size_t ring() const { return capacity_ + kExtra; }

  Pipe& pipe_;
  uint8_t* bytes_;
  size_t capacity_;
};

class Segment {
 public:
  static constexpr size_t kCollectiveCapacity = size_t{128} << 10;

  // Kept by this process until it has joined. False: the system has none.
  static bool Create(Place& place);
  // Null: it is gone, is none, or has another number of ranks.
  static std::shared_ptr<Segment> Open(const Place& place, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Member& member(int rank) { return header().members[rank]; }
  PipeEnd Messages(int from, int to) { return End(from, to, false); }
  PipeEnd Collective(int from, int to) { return End(from, to, true); }

 private:
  Segment() = default;
  static size_t Bytes(int ranks, size_t capacity);
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(data_); }
  PipeEnd End(int from, int to, bool collective);

  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  int ranks_ = 0;
};

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_SEGMENT_H_
