// SPDX-License-Identifier: Apache-2.0
//
// Two ranks that share memory, without communicators.
#ifndef NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_
#define NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sendrecv/shares.h"
#include "sendrecv/stand_in/processes.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kChunk = uint64_t{2} << 20;
// Nothing waits on the GPU, or something does.
inline bool IsQuiet() { return true; }
inline bool IsBusy() { return false; }

// What a rank has of a communicator to share memory. On a GPU of its own.
class Side {
 public:
  // One rank after another. `key`: of the test.
  Side(const std::string& key, size_t place);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Card& card(size_t place) { return segment->memory().cards[place]; }
  Reach Ask(soft::CUdeviceptr address, uint64_t bytes, size_t peer) {
    return offers->Find(address, bytes, peer).reach;
  }
  // Of a peer that is there.
  void Meet(size_t peer, Imports::Kind kind);

  std::shared_ptr<Segment> segment;
  std::unique_ptr<CudaDriver> driver;
  std::unique_ptr<Mailbox> mailbox;
  std::unique_ptr<Inbox> inbox;
  std::unique_ptr<Offers> offers;
  std::unique_ptr<Imports> imports;

 private:
  size_t place_;
};

// Rank 0 offers and rank 1 maps, in processes; each with what it is to do. `refuse`: what CUDA does
// not do for rank 1.
class Pair {
 public:
  explicit Pair(const char* refuse = "") : refuse_(refuse) {}
  template <typename Offer, typename Import>
  void Run(const Offer& offer, const Import& import, int killed = -1) {
    ranks_.Run(
        [&](int rank) {
          if (rank == 1) setenv("SOFT_CUDA_REFUSE", refuse_, 1);
          soft::UseGpu(rank);
          for (int turn = 0; turn < 2; ++turn) {
            if (turn == rank) side_ = std::make_unique<Side>("pair", static_cast<size_t>(rank));
            ranks_.Meet();
          }
          side_->Meet(rank == 0 ? 1 : 0, Imports::Kind::kByHandle);
          if (rank == 0) {
            offer(*side_);
          } else {
            import(*side_);
          }
          side_.reset();
        },
        killed);
  }
  void Meet(int without = 0) { ranks_.Meet(without); }
  // From rank 0 to rank 1.
  void Tell(const Found& found);
  DeviceAddress Told(Side& side);
  int& number(size_t i) { return ranks_.shared().numbers[i]; }

 private:
  soft::Ranks ranks_{2};
  const char* refuse_;
  std::unique_ptr<Side> side_;
};

// Chunks side by side, on the GPU of the calling thread.
class Segments {
 public:
  // `types`: handles that it may be shared by.
  Segments(size_t room, size_t chunks, int types = 1);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  soft::CUdeviceptr at(uint64_t offset = 0) const { return base_ + offset; }
  void Map(size_t chunk);
  void Unmap(size_t chunk);
  // Of a pattern.
  void Write(int seed);

 private:
  soft::CUdeviceptr base_ = 0;
  size_t room_;
  int types_;
  std::set<size_t> mapped_;
};

// Of this process.
size_t OpenDescriptors();
// GPU memory that this process keeps, in pieces.
size_t HeldMemory();
// Those that a program would get that this process starts.
size_t InheritedDescriptors();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_
