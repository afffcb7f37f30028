// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/engine/sharing.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

size_t Count(const std::function<bool(int, const std::string&)>& fits) {
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

}  // namespace

Side::Side(const std::string& key, size_t place) : place_(place) {
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

Side::~Side() {
  imported.reset();
  record(place_).state.store(RankRecord::kLeft);
}

void Side::Meet(size_t peer, ImportedMemory::Kind kind) {
  segment->Unlink();
  imported =
      std::make_unique<ImportedMemory>(*driver, record(peer), place_, kind, inbox.get(), peer);
}

void Pair::SendLookup(const ExportLookup& found) {
  number(0) = static_cast<int>(found.number);
  number(1) = static_cast<int>(found.offset);
}

DeviceAddress Pair::Resolved(Side& side) {
  return side.imported->Resolve(static_cast<uint64_t>(number(0)), static_cast<uint64_t>(number(1)),
                                1);
}

Segments::Segments(size_t room, size_t chunks, int types) : room_(room), types_(types) {
  EXPECT_EQ(soft::cuMemAddressReserve(&base_, room * kChunk, 0, 0, 0), soft::kCudaSuccess);
  for (size_t i = 0; i < chunks; ++i) Map(i);
}

Segments::~Segments() {
  while (!mapped_.empty()) Unmap(*mapped_.begin());
  EXPECT_EQ(soft::cuMemAddressFree(base_, room_ * kChunk), soft::kCudaSuccess);
}

void Segments::Map(size_t chunk) {
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

void Segments::Unmap(size_t chunk) {
  EXPECT_EQ(soft::cuMemUnmap(at(chunk * kChunk), kChunk), soft::kCudaSuccess);
  mapped_.erase(chunk);
}

void Segments::Write(int seed) {
  const std::vector<uint8_t> data = soft::Pattern(mapped_.size() * kChunk, seed);
  EXPECT_EQ(soft::cuMemcpyHtoD_v2(base_, data.data(), data.size()), soft::kCudaSuccess);
}

LocalRanks::LocalRanks(const std::string& name, const SendRecvOptions& zero,
                       const SendRecvOptions& one) {
  const std::string key = name + " " + std::to_string(getpid());
  std::string why;
  for (const int rank : {0, 1}) {
    soft::UseGpu(rank);
    ranks_[rank] = Communicator::Join(key, rank, rank == 0 ? zero : one, &why);
    EXPECT_NE(ranks_[rank], nullptr) << why;
  }
  segment_ = Segment::Open(key, &why);
}

// The watcher may hold a lock at this moment.
LocalRanks::~LocalRanks() {
  for (const auto& rank : ranks_) EXPECT_TRUE(soft::Soon([&] { return rank->Close(); }));
}

void LocalRanks::Begin() {
  for (const int rank : {0, 1}) ranks_[rank]->Begin(rank);
}

size_t OpenDescriptors() {
  return Count([](int, const std::string&) { return true; });
}

size_t HeldMemory() {
  return Count([](int, const std::string& target) {
    return target.find("memfd:soft-cuda") != std::string::npos;
  });
}

size_t InheritedDescriptors() {
  return Count([](int number, const std::string&) {
    return number > 2 && (fcntl(number, F_GETFD) & FD_CLOEXEC) == 0;
  });
}

}  // namespace nccltune::sendrecv
