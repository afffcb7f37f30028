// SPDX-License-Identifier: Apache-2.0
// Test helpers: two ranks that share memory, without communicators.
#pragma once

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
  Side(const std::string& key, size_t place) : place_(place) {
    std::string why;
    const cu::Api* const api = OpenCuda(&why);
    driver = CudaDriver::OfCurrent(*api, &why);
    const std::string whole = key + std::to_string(getppid());
    segment = Segment::Open(whole, &why);
    EXPECT_EQ(segment->Join(&why), place) << why;
    mailbox = Mailbox::Open(*segment);
    EXPECT_NE(mailbox, nullptr);
    record(place).mailbox = mailbox->token();
    inbox = std::make_unique<Inbox>(*driver, segment->memory(), *mailbox);
    exported = std::make_unique<ExportedMemory>(*driver, record(place), mailbox.get(), place);
    record(place).process = ThisProcess();
    record(place).state.store(RankRecord::kJoined);
  }
  ~Side() {
    imported.reset();
    record(place_).state.store(RankRecord::kLeft);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  RankRecord& record(size_t place) { return segment->memory().records[place]; }
  ExportStatus Ask(soft::CUdeviceptr address, uint64_t bytes, size_t peer) {
    return exported->Find(address, bytes, peer).status;
  }
  // Connects this rank to a peer that has joined.
  void Meet(size_t peer, ImportedMemory::Kind kind) {
    segment->Unlink();
    imported =
        std::make_unique<ImportedMemory>(*driver, record(peer), place_, kind, inbox.get(), peer);
  }

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
  void LetOtherWork() {
    Meet();
    Meet();
  }
  void MeetAndUpdate(Side& side) {
    Meet();
    side.imported->Update(&IsQuiet);
  }
  // Sends the result of a lookup from rank 0 to rank 1.
  void SendLookup(const ExportLookup& found) {
    number(0) = static_cast<int>(found.number);
    number(1) = static_cast<int>(found.offset);
  }
  DeviceAddress Resolved(Side& side) {
    return side.imported->Resolve(static_cast<uint64_t>(number(0)),
                                  static_cast<uint64_t>(number(1)), 1);
  }
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
  Segments(size_t room, size_t chunks, int types = 1) : room_(room), types_(types) {
    EXPECT_EQ(soft::cuMemAddressReserve(&base_, room * kChunk, 0, 0, 0), soft::kCudaSuccess);
    for (size_t i = 0; i < chunks; ++i) Map(i);
  }
  ~Segments() {
    while (!mapped_.empty()) Unmap(*mapped_.begin());
    EXPECT_EQ(soft::cuMemAddressFree(base_, room_ * kChunk), soft::kCudaSuccess);
  }
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  soft::CUdeviceptr at(uint64_t offset = 0) const { return base_ + offset; }
  void Map(size_t chunk) {
    soft::CUdevice gpu = 0;
    EXPECT_EQ(soft::cuCtxGetDevice(&gpu), soft::kCudaSuccess);
    soft::CUmemAllocationProp prop = {};
    prop.type = 1;
    prop.requestedHandleTypes = types_;
    prop.location = {.type = 1, .id = gpu};
    soft::CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(soft::cuMemCreate(&handle, kChunk, &prop, 0), soft::kCudaSuccess);
    EXPECT_EQ(soft::cuMemMap(at(chunk * kChunk), kChunk, 0, handle, 0), soft::kCudaSuccess);
    EXPECT_EQ(soft::cuMemRelease(handle), soft::kCudaSuccess);
    const soft::CUmemAccessDesc access = {.location = prop.location, .flags = 3};
    EXPECT_EQ(soft::cuMemSetAccess(at(chunk * kChunk), kChunk, &access, 1), soft::kCudaSuccess);
    mapped_.insert(chunk);
  }
  void Unmap(size_t chunk) {
    EXPECT_EQ(soft::cuMemUnmap(at(chunk * kChunk), kChunk), soft::kCudaSuccess);
    mapped_.erase(chunk);
  }
  // Fills the chunks with a pattern.
  void Write(int seed) {
    const std::vector<uint8_t> data = soft::Pattern(mapped_.size() * kChunk, seed);
    EXPECT_EQ(soft::cuMemcpyHtoD_v2(base_, data.data(), data.size()), soft::kCudaSuccess);
  }

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
                      const SendRecvOptions& one = {}) {
    const std::string key = name + " " + std::to_string(getpid());
    std::string why;
    for (const int rank : {0, 1}) {
      soft::UseGpu(rank);
      ranks_[rank] = Communicator::Join(key, rank, rank == 0 ? zero : one, &why);
      EXPECT_NE(ranks_[rank], nullptr) << why;
    }
    segment_ = Segment::Open(key, &why);
  }
  // Closes both.
  ~LocalRanks() {
    for (const auto& rank : ranks_) EXPECT_TRUE(soft::Soon([&] { return rank->Close(); }));
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  void Begin() {
    for (const int rank : {0, 1}) ranks_[rank]->Begin(rank);
  }
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

inline size_t Count(const std::function<bool(int, const std::string&)>& fits) {
  size_t count = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(each.path(), error).string();
    // The open descriptor of the folder itself does not count.
    if (error || target.ends_with("/fd")) continue;
    if (fits(std::stoi(each.path().filename().string()), target)) ++count;
  }
  return count;
}

// Number of open descriptors of this process.
inline size_t OpenDescriptors() {
  return Count([](int, const std::string&) { return true; });
}

// Number of GPU allocations that this process keeps.
inline size_t HeldMemory() {
  return Count([](int, const std::string& target) {
    return target.find("memfd:soft-cuda") != std::string::npos;
  });
}

// Number of descriptors that a started program would inherit.
inline size_t InheritedDescriptors() {
  return Count([](int number, const std::string&) {
    return number > 2 && (fcntl(number, F_GETFD) & FD_CLOEXEC) == 0;
  });
}

}  // namespace nccltune::sendrecv
