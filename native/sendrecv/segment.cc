// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "common/content_hash.h"
#include "sendrecv/cuda_driver.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kPage = 64 << 10;  // of the largest kind that there is

constexpr size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

constexpr size_t kHead = Pages(sizeof(SegmentMemory));
constexpr size_t kLane = Pages(sizeof(LaneMemory) + sizeof(Sums));
constexpr size_t kWhole = kHead + kMostLocal * kMostLocal * kLane;

// The lanes are all zero at first, which is what an object of each kind begins as.
static_assert(std::atomic<uint64_t>::is_always_lock_free);

std::mutex& OpenMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::map<std::string, std::weak_ptr<Segment>>& OpenSegments() {
  static auto& segments = *new std::map<std::string, std::weak_ptr<Segment>>;
  return segments;
}

std::string NameFor(std::string_view key) {
  std::ostringstream name;
  name << "/nccltune-sendrecv-" << SegmentMemory::kLayout << "-" << std::hex << std::setfill('0')
       << std::setw(16) << ContentHash(key);
  return name.str();
}

std::string Errno(const std::string& what) { return what + ": " + std::strerror(errno); }

// One byte for each place. A lock of the process, which ends with it however it ends, and no sooner
// although children of it live on.
struct flock LockOf(size_t place, int16_t type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place);
  lock.l_len = 1;
  return lock;
}

}  // namespace

struct Segment::Mapped {
  LaneMemory* memory = nullptr;
  std::unique_ptr<Pinned> pinned;

  Mapped(int file, size_t number) {
    const auto offset = static_cast<off_t>(kHead + number * kLane);
    void* at = mmap(nullptr, kLane, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    if (at != MAP_FAILED) memory = static_cast<LaneMemory*>(at);
  }
  LanePlace place() const {
    return {.memory = memory, .sums = reinterpret_cast<Sums*>(memory + 1)};
  }
  ~Mapped() {
    pinned.reset();
    if (memory != nullptr) munmap(memory, kLane);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
};

Segment::Segment(std::string name) : name_(std::move(name)) {}

std::shared_ptr<Segment> Segment::Open(std::string_view key, std::string* why) {
  const std::string name = NameFor(key);
  // Where it is of no use it is destroyed without the lock, which its end takes.
  std::shared_ptr<Segment> made;
  const std::scoped_lock lock(OpenMutex());
  std::weak_ptr<Segment>& known = OpenSegments()[name];
  if (std::shared_ptr<Segment> open = known.lock()) return open;
  made.reset(new Segment(name));
  if (!made->OpenFile(why)) return nullptr;
  known = made;
  return made;
}

bool Segment::OpenFile(std::string* why) {
  // A file that is too large is a signal, not an error.
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kWhole) {
    *why = "files may have " + std::to_string(limit.rlim_cur) + " bytes (ulimit -f), " +
           std::to_string(kWhole) + " are needed";
    return false;
  }
  file_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) {
    *why = Errno("/dev/shm" + name_);
    return false;
  }
  if (FillFile(why)) return true;
  // Whoever comes later makes another, and does not meet those who were before.
  Unlink();
  return false;
}

bool Segment::FillFile(std::string* why) {
  // What is not touched takes no memory.
  if (ftruncate(file_, kWhole) != 0) {
    *why = Errno("/dev/shm" + name_ + " cannot have " + std::to_string(kWhole) + " bytes");
    return false;
  }
  if (!Fill(0, offsetof(SegmentMemory, cards), why)) return false;
  void* at = mmap(nullptr, kHead, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) {
    *why = Errno("mmap of /dev/shm" + name_);
    return false;
  }
  memory_ = static_cast<SegmentMemory*>(at);
  return true;
}

// Otherwise the first write is a SIGBUS.
bool Segment::Fill(size_t begin, size_t bytes, std::string* why) const {
  const int error = posix_fallocate(file_, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  if (error == 0) return true;
  *why = "/dev/shm has no room for " + std::to_string(bytes) + " bytes: " + std::strerror(error);
  return false;
}

Segment::~Segment() {
  lanes_.clear();
  if (memory_ != nullptr) munmap(memory_, kHead);
  if (file_ >= 0) close(file_);
  const std::scoped_lock lock(OpenMutex());
  const auto known = OpenSegments().find(name_);
  if (known != OpenSegments().end() && known->second.expired()) OpenSegments().erase(known);
}

bool Segment::Lock(size_t place) {
  struct flock lock = LockOf(place, F_WRLCK);
  return fcntl(file_, F_SETLK, &lock) == 0;
}

std::optional<size_t> Segment::Join(std::string* why) {
  const uint32_t place = memory_->places.fetch_add(1);
  if (place >= kMostLocal) {
    *why = "more than " + std::to_string(kMostLocal) + " ranks on this host";
    return {};
  }
  const size_t begin = offsetof(SegmentMemory, cards) + place * sizeof(Card);
  if (!Fill(begin, sizeof(Card), why)) return {};
  if (!Lock(place)) {
    *why = Errno("a lock on /dev/shm" + name_);
    return {};
  }
  const std::scoped_lock lock(mutex_);
  joined_here_ |= uint64_t{1} << place;
  return place;
}

bool Segment::Lives(size_t place) {
  {
    const std::scoped_lock lock(mutex_);
    if ((joined_here_ >> place & 1) != 0) return true;
  }
  if (memory_->cards[place].state.load() != Card::kHere) return true;
  struct flock lock = LockOf(place, F_WRLCK);
  // Who can have the lock is alone with it.
  return fcntl(file_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

Segment::LanePlace Segment::Lane(const CudaDriver& driver, size_t from, size_t to, bool* failed) {
  const size_t number = from * kMostLocal + to;
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Mapped>& mapped = lanes_[number];
  if (mapped != nullptr) return mapped->place();
  std::atomic<uint32_t>& state = memory_->lanes[number];
  uint32_t seen = state.load();
  if (seen == SegmentMemory::kNever) return {};
  auto made = std::make_unique<Mapped>(file_, number);
  std::string why;
  bool well = made->memory != nullptr && Fill(kHead + number * kLane, kLane, &why);
  if (well) {
    made->pinned = std::make_unique<Pinned>(driver, made->memory, kLane);
    well = static_cast<bool>(*made->pinned);
  }
  // Who is first decides for both.
  if (seen == SegmentMemory::kUntouched) {
    const uint32_t mine = well ? SegmentMemory::kThere : SegmentMemory::kNever;
    if (state.compare_exchange_strong(seen, mine)) seen = mine;
  }
  if (seen == SegmentMemory::kNever) return {};
  if (!well) {
    *failed = true;
    return {};
  }
  mapped = std::move(made);
  return mapped->place();
}

void Segment::Unlink() { shm_unlink(name_.c_str()); }

}  // namespace nccltune::sendrecv
