// SPDX-License-Identifier: Apache-2.0
// Test helpers: two ranks that share memory, without communicators.
#ifndef NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_
#define NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_

#include "sendrecv/group/communicator.h"
#include "sendrecv/memory/exported_memory.h"
#include "sendrecv/memory/imported_memory.h"
#include "sendrecv/stand_in/processes.h"
#include "standard.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kChunk = uint64_t{2} << 20;
// Results for the `is_idle` argument of ImportedMemory::Update.
inline bool IsQuiet() { return true; }
inline bool IsBusy() { return false; }

// The part of a communicator that one rank needs to share memory, on a GPU of its own.
class Side {
 public:
  // Construct one rank after the other. `key`: different for each test.
  Side(const std::string& key, size_t place);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  RankRecord& record(size_t place) { return segment->memory().records[place]; }
  ExportStatus Ask(soft::CUdeviceptr address, uint64_t bytes, size_t peer) {
    return exported->Find(address, bytes, peer).status;
  }
  // Connects this rank to a peer that has joined.
  void Meet(size_t peer, ImportedMemory::Kind kind);

  std::shared_ptr<Segment> segment;
  std::unique_ptr<CudaDriver> driver;
  std::unique_ptr<Mailbox> mailbox;
  std::unique_ptr<Inbox> inbox;
  std::unique_ptr<ExportedMemory> exported;
  std::unique_ptr<ImportedMemory> imported;

 private:
  size_t place_;
};

// Runs rank 0, which exports, and rank 1, which maps, in two processes. `refuse`: the function that
// CUDA refuses for rank 1.
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
          side_->Meet(rank == 0 ? 1 : 0, ImportedMemory::Kind::kByHandle);
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
  // Sends the result of a lookup from rank 0 to rank 1.
  void SendLookup(const ExportLookup& found);
  DeviceAddress Resolved(Side& side);
  int& number(size_t i) { return ranks_.shared().numbers[i]; }

 private:
  soft::Ranks ranks_{2};
  const char* refuse_;
  std::unique_ptr<Side> side_;
};

// Adjacent chunks on the calling thread's GPU.
class Segments {
 public:
  // `types`: the kinds of handles by which the chunks can be shared.
  Segments(size_t room, size_t chunks, int types = 1);
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  soft::CUdeviceptr at(uint64_t offset = 0) const { return base_ + offset; }
  void Map(size_t chunk);
  void Unmap(size_t chunk);
  // Fills the chunks with a pattern.
  void Write(int seed);

 private:
  soft::CUdeviceptr base_ = 0;
  size_t room_;
  int types_;
  std::set<size_t> mapped_;
};

// Ranks 0 and 1 of a communicator, both in this process, each on a GPU of its own.
class LocalRanks {
 public:
  // `name`: different for each test.
  explicit LocalRanks(const std::string& name, const SendRecvOptions& zero = {},
                      const SendRecvOptions& one = {});
  // Closes both.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  void Begin();
  const std::shared_ptr<Communicator>& operator[](size_t rank) const { return ranks_[rank]; }
  // Lets a test change what a rank publishes.
  RankRecord& record(size_t rank) { return segment_->memory().records[rank]; }
  // Returns the ends of the lane from rank 0 to rank 1.
  Port* sends() { return ranks_[0]->FindPort(1, Role::kSender, true); }
  Port* receives() { return ranks_[1]->FindPort(0, Role::kReceiver, true); }

 private:
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Communicator> ranks_[2];
};

// Number of open descriptors of this process.
size_t OpenDescriptors();
// Number of GPU allocations that this process keeps.
size_t HeldMemory();
// Number of descriptors that a started program would inherit.
size_t InheritedDescriptors();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_ENGINE_SHARING_H_
