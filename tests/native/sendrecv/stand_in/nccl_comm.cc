// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_comm.h"
#include "sendrecv/stand_in/cuda_options.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

struct Comms {
  std::mutex mutex;
  std::map<const ncclComm*, std::shared_ptr<Comm>> by_handle;
  std::string failure;
};

Comms& AllComms() {
  static auto* const comms = new Comms;
  return *comms;
}

// Returns false if the communicator was aborted meanwhile.
template <typename Condition>
bool Await(const Comm& comm, const Condition& condition) {
  Patience patience;
  while (!condition()) {
    if (comm.aborted) return false;
    patience.Sleep();
  }
  return true;
}

constexpr uint64_t kMagic = 0x736f'6674'6e63'636c;

struct Known {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Segment>> open;  // by inode
  uint64_t created = 0;
};

Known& AllKnown() {
  static auto* const known = new Known;
  return *known;
}

uint8_t* Map(int fd, size_t bytes) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<uint8_t*>(data);
}

}  // namespace

ncclResult_t Fail(ncclResult_t result, const std::string& why) {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  all.failure = why;
  return result;
}

const char* LastFailure() {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  thread_local std::string last;
  last = all.failure;
  return last.c_str();
}

std::shared_ptr<Comm> NewComm() {
  CUcontext context = nullptr;
  if (cuInit(0) != kCudaSuccess || cuCtxGetCurrent(&context) != kCudaSuccess) return nullptr;
  if (context == nullptr) {
    if (cuDevicePrimaryCtxRetain(&context, 0) != kCudaSuccess) return nullptr;
    cuCtxSetCurrent(context);
  }
  auto comm = std::make_shared<Comm>();
  comm->context = context;
  cuCtxGetDevice(&comm->gpu);
  if (cuEventCreate(&comm->last, 0) != kCudaSuccess) return nullptr;
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  all.by_handle[HandleOf(comm)] = comm;
  return comm;
}

ncclComm_t HandleOf(const std::shared_ptr<Comm>& comm) {
  return reinterpret_cast<ncclComm_t>(comm.get());
}

std::shared_ptr<Comm> FindComm(const ncclComm* handle) {
  Comms& all = AllComms();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.by_handle.find(handle);
  return found == all.by_handle.end() ? nullptr : found->second;
}

void ForgetComm(const std::shared_ptr<Comm>& comm) {
  {
    Comms& all = AllComms();
    const std::scoped_lock lock(all.mutex);
    all.by_handle.erase(HandleOf(comm));
  }
  if (comm->observer != nullptr) comm->observer->Close();
  const std::scoped_lock lock(comm->mutex);
  cuEventDestroy_v2(comm->last);
  // A graph may still run a kernel of an aborted communicator.
  static auto* const left = new std::vector<std::unique_ptr<Kernel>>;
  static auto* const left_mutex = new std::mutex;
  const std::scoped_lock left_lock(*left_mutex);
  for (auto& [key, kernel] : comm->kernels) {
    if (comm->aborted && kernel->captured) left->push_back(std::move(kernel));
  }
  comm->kernels.clear();
}

ncclResult_t Join(Comm& comm, const Place& place, int ranks, int rank) {
  if (rank < 0 || rank >= ranks) return Fail(kNcclInvalidArgument, "no such rank");
  comm.segment = Segment::Open(place, ranks);
  if (comm.segment == nullptr) {
    return Fail(kNcclSystemError, "the unique id's process is gone, or ranks differ in number");
  }
  comm.rank = rank;
  comm.ranks = ranks;
  Member& mine = comm.segment->member(rank);
  int none = 0;
  if (!mine.joined.compare_exchange_strong(none, 1)) {
    return Fail(kNcclInvalidUsage, "rank " + std::to_string(rank) + " comes twice");
  }
  mine.gpu = comm.gpu;
  mine.joined = 2;
  for (int each = 0; each < ranks; ++each) {
    Member& other = comm.segment->member(each);
    if (!Await(comm, [&] { return other.joined == 2; })) return kNcclInternalError;
  }
  for (int each = 0; each < ranks; ++each) {
    if (each == rank || comm.segment->member(each).gpu != comm.gpu) continue;
    // nccltune-bench checks it itself, or lets ranks share a GPU.
    if (CommObserver::make != nullptr) break;
    return Fail(kNcclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) +
                                       " and rank " + std::to_string(each));
  }
  if (CommObserver::make != nullptr) comm.observer = CommObserver::make(comm);
  comm.ready = true;
  return kNcclSuccess;
}

ncclResult_t JoinGrown(Comm& parent, uint64_t round, const Place* place, int ranks, Comm& made) {
  const auto ballot = [&](int rank) -> Ballot& { return parent.segment->member(rank).grow; };
  int leader = parent.rank;
  if (place != nullptr) {
    ballot(leader).place = *place;
    ballot(leader).placed = round;
  } else {
    const bool found = Await(parent, [&] {
      for (leader = 0; leader < parent.ranks; ++leader) {
        if (ballot(leader).placed >= round) return true;
      }
      return false;
    });
    if (!found) return kNcclInternalError;
  }
  return Join(made, ballot(leader).place, ranks, parent.rank);
}

ncclResult_t JoinByVote(Comm& parent, const Vote& vote, Comm& made) {
  const auto ballot = [&](int rank) -> Ballot& {
    Member& member = parent.segment->member(rank);
    return vote.shrink ? member.shrink : member.split;
  };
  const auto reached = [&](std::atomic<uint64_t> Ballot::* counter, uint64_t round) {
    return std::ranges::all_of(vote.voters,
                               [&](int rank) { return (ballot(rank).*counter).load() >= round; });
  };
  // No rank still reads the ballots of the previous round.
  Ballot& mine = ballot(parent.rank);
  const bool free = Await(parent, [&] { return reached(&Ballot::left, vote.round - 1); });
  if (!free) return kNcclInternalError;
  mine.color = vote.color;
  mine.key = vote.key;
  mine.rounds = vote.round;
  if (!Await(parent, [&] { return reached(&Ballot::rounds, vote.round); }))
    return kNcclInternalError;
  if (vote.color < 0) {
    mine.left = vote.round;
    return kNcclSuccess;
  }
  std::vector<int> members;
  for (const int rank : vote.voters) {
    if (ballot(rank).color == vote.color) members.push_back(rank);
  }
  std::ranges::sort(members, {}, [&](int rank) { return std::pair(ballot(rank).key, rank); });
  Ballot& leader = ballot(members.front());
  if (&leader == &mine) {
    if (!Segment::Create(mine.place)) return Fail(kNcclSystemError, "no memory for a segment");
    mine.placed = vote.round;
  }
  if (!Await(parent, [&] { return leader.placed >= vote.round; })) return kNcclInternalError;
  const Place place = leader.place;
  mine.left = vote.round;
  const auto rank = std::ranges::find(members, parent.rank) - members.begin();
  return Join(made, place, static_cast<int>(members.size()), static_cast<int>(rank));
}

size_t PipeEnd::ToWrite(size_t wanted, uint8_t*& at) const {
  const uint64_t written = pipe_.written.load(std::memory_order_relaxed);
  const size_t room = ring() - (written - pipe_.read.load(std::memory_order_acquire));
  const size_t data = capacity_ - (pipe_.data_written.load(std::memory_order_relaxed) -
                                   pipe_.data_read.load(std::memory_order_relaxed));
  const size_t place = written % ring();
  at = bytes_ + place;
  return std::min({wanted, room, data, ring() - place});
}

void PipeEnd::Wrote(size_t bytes, bool data) {
  if (data) pipe_.data_written.fetch_add(bytes, std::memory_order_relaxed);
  pipe_.written.fetch_add(bytes, std::memory_order_release);
}

size_t PipeEnd::ToRead(size_t wanted, uint8_t*& at) const {
  const uint64_t read = pipe_.read.load(std::memory_order_relaxed);
  const size_t there = pipe_.written.load(std::memory_order_acquire) - read;
  const size_t place = read % ring();
  at = bytes_ + place;
  return std::min({wanted, there, ring() - place});
}

void PipeEnd::Read(size_t bytes, bool data) {
  if (data) pipe_.data_read.fetch_add(bytes, std::memory_order_relaxed);
  pipe_.read.fetch_add(bytes, std::memory_order_release);
}

bool Segment::Create(Place& place) {
  Known& known = AllKnown();
  const std::scoped_lock lock(known.mutex);
  // Stays open as long as the process, because other ranks may join late.
  const int fd = memfd_create("soft-nccl", MFD_CLOEXEC);
  struct stat about = {};
  if (fd < 0 || ftruncate(fd, sizeof(SegmentHeader)) != 0 || fstat(fd, &about) != 0) return false;
  uint8_t* const data = Map(fd, sizeof(SegmentHeader));
  if (data == nullptr) return false;
  auto* const header = new (data) SegmentHeader{};
  header->capacity = static_cast<uint64_t>(NumberOf("SOFT_NCCL_BUFFER", 4 << 20));
  header->magic = kMagic;
  munmap(data, sizeof(SegmentHeader));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  place = {.magic = kMagic,
           .process = getpid(),
           .fd = fd,
           .inode = about.st_ino,
           .time = static_cast<uint64_t>(std::chrono::nanoseconds(now).count()),
           .number = ++known.created};
  return true;
}

size_t Segment::Bytes(int ranks, size_t capacity) {
  const auto pairs = static_cast<size_t>(ranks) * static_cast<size_t>(ranks);
  return sizeof(SegmentHeader) +
         pairs * (2 * sizeof(Pipe) + capacity + kCollectiveCapacity + 2 * PipeEnd::kExtra);
}

std::shared_ptr<Segment> Segment::Open(const Place& place, int ranks) {
  if (place.magic != kMagic || ranks < 1 || ranks > kMostRanks) return nullptr;
  Known& known = AllKnown();
  const std::scoped_lock lock(known.mutex);
  // All ranks of a process share one mapping.
  std::weak_ptr<Segment>& mine = known.open[place.inode];
  if (const std::shared_ptr<Segment> segment = mine.lock()) {
    return segment->ranks_ == ranks ? segment : nullptr;
  }
  const int fd = OpenFileOf(place.process, place.fd, place.inode);
  if (fd < 0) return nullptr;
  uint8_t* data = Map(fd, sizeof(SegmentHeader));
  size_t bytes = 0;
  if (data != nullptr) {
    auto* const header = reinterpret_cast<SegmentHeader*>(data);
    int none = 0;
    header->ranks.compare_exchange_strong(none, ranks);
    const bool same = header->magic == kMagic && header->ranks == ranks;
    bytes = same ? Bytes(ranks, header->capacity) : 0;
    munmap(data, sizeof(SegmentHeader));
  }
  data = bytes > 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? Map(fd, bytes) : nullptr;
  close(fd);
  if (data == nullptr) return nullptr;
  std::shared_ptr<Segment> segment(new Segment);
  segment->data_ = data;
  segment->bytes_ = bytes;
  segment->ranks_ = ranks;
  mine = segment;
  return segment;
}

Segment::~Segment() { munmap(data_, bytes_); }

PipeEnd Segment::End(int from, int to, bool collective) {
  const auto ranks = static_cast<size_t>(ranks_);
  const size_t pair = static_cast<size_t>(from) * ranks + static_cast<size_t>(to);
  const size_t capacity = header().capacity;
  auto* const pipes = reinterpret_cast<Pipe*>(data_ + sizeof(SegmentHeader));
  uint8_t* const rings = data_ + sizeof(SegmentHeader) + 2 * ranks * ranks * sizeof(Pipe);
  const size_t message_ring = capacity + PipeEnd::kExtra;
  if (!collective) return {pipes[pair], rings + pair * message_ring, capacity};
  uint8_t* const collectives = rings + ranks * ranks * message_ring;
  return {pipes[ranks * ranks + pair], collectives + pair * (kCollectiveCapacity + PipeEnd::kExtra),
          kCollectiveCapacity};
}

}  // namespace nccltune::soft
