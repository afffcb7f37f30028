// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/nccl_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "sendrecv/stand_in/cuda_options.h"

namespace nccltune::soft {
namespace {

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

int OpenPlace(const Place& place) {
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about = {};
  if (fd >= 0 && (fstat(fd, &about) != 0 || about.st_ino != place.inode)) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

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
  const int fd = OpenPlace(place);
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
