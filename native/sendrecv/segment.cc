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
#include "common/retry.h"
#include "sendrecv/cuda_driver.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kPage = 64 << 10;  // the largest page size in use (aarch64)

constexpr size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

constexpr size_t kHeadBytes = Pages(sizeof(SegmentMemory));
constexpr size_t kLaneBytes = Pages(sizeof(LaneMemory) + sizeof(Sums));
constexpr size_t kFileBytes = kHeadBytes + kMaxLocalRanks * kMaxLocalRanks * kLaneBytes;

// The file is all zero at first, which is a valid initial value of every object in it. Atomic
// objects that processes share must be lock-free.
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr const char* kFolder = "/dev/shm";

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

// Each place has a file lock on one byte. The lock belongs to the process: it ends with the
// process, and forked children neither keep it nor release it.
struct flock LockRequest(size_t place, int16_t type) {
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
  std::unique_ptr<PinnedMemory> pinned;

  Mapped() = default;
  bool Map(int file, size_t number, std::string* why) {
    const auto offset = static_cast<off_t>(kHeadBytes + number * kLaneBytes);
    void* at = mmap(nullptr, kLaneBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    if (at == MAP_FAILED) {
      *why = Errno("mmap");
      return false;
    }
    memory = static_cast<LaneMemory*>(at);
    return true;
  }
  bool Pin(const CudaDriver& driver, std::string* why) {
    pinned = std::make_unique<PinnedMemory>(driver, memory, kLaneBytes);
    if (*pinned) return true;
    *why = "CUDA cannot register it (cuMemHostRegister)";
    return false;
  }
  LaneMapping mapping() const {
    return {.memory = memory, .sums = reinterpret_cast<Sums*>(memory + 1)};
  }
  ~Mapped() {
    pinned.reset();
    if (memory != nullptr) munmap(memory, kLaneBytes);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
};

Segment::Segment(std::string name) : name_(std::move(name)) {}

std::shared_ptr<Segment> Segment::Open(std::string_view key, std::string* why) {
  const std::string name = NameFor(key);
  // Declared before the lock, so that a segment that failed to open is destroyed after unlocking.
  // The destructor of Segment takes the same lock.
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
  // Exceeding the file size limit raises SIGXFSZ instead of returning an error, so check first.
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kFileBytes) {
    *why = "files may have " + std::to_string(limit.rlim_cur) + " bytes (ulimit -f), " +
           std::to_string(kFileBytes) + " are needed";
    return false;
  }
  // shm_open is not used: before glibc 2.34 it requires librt.
  file_ = Retry([&] {
    return open((kFolder + name_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  });
  if (file_ < 0) {
    *why = Errno(kFolder + name_);
    return false;
  }
  if (!IsOurs(why)) return false;
  if (MapHead(why)) return true;
  // Remove the unusable file. Ranks that open the segment later create a new file, and do not meet
  // the ranks that have this file open.
  Unlink();
  return false;
}

// /dev/shm is writable by all users, so another user may have created a file of this name.
bool Segment::IsOurs(std::string* why) const {
  struct stat found = {};
  if (Retry([&] { return fstat(file_, &found); }) != 0) {
    *why = Errno("fstat of " + (kFolder + name_));
    return false;
  }
  if (S_ISREG(found.st_mode) && found.st_uid == geteuid() && (found.st_mode & 077) == 0) {
    return true;
  }
  *why = kFolder + name_ + " is not a file of this user alone (owner " +
         std::to_string(found.st_uid) + "); remove it";
  return false;
}

bool Segment::MapHead(std::string* why) {
  // The file is sparse: untouched pages take no memory.
  if (Retry([&] { return ftruncate(file_, kFileBytes); }) != 0) {
    *why = Errno(kFolder + name_ + " cannot have " + std::to_string(kFileBytes) + " bytes");
    return false;
  }
  if (!ReserveMemory(0, offsetof(SegmentMemory, records), why)) return false;
  void* at = mmap(nullptr, kHeadBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) {
    *why = Errno("mmap of " + (kFolder + name_));
    return false;
  }
  memory_ = static_cast<SegmentMemory*>(at);
  uint64_t header = 0;
  if (memory_->header.compare_exchange_strong(header, SegmentMemory::kHeader) ||
      header == SegmentMemory::kHeader) {
    return true;
  }
  *why = kFolder + name_ + " is of another release or damaged";
  return false;
}

// Without reserved memory the first write could raise SIGBUS. posix_fallocate is not used: if the
// file system lacks fallocate, posix_fallocate writes to the file.
bool Segment::ReserveMemory(size_t begin, size_t bytes, std::string* why) const {
  const int result = Retry(
      [&] { return fallocate(file_, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)); });
  if (result == 0) return true;
  *why = Errno(kFolder + std::string(" has no room for ") + std::to_string(bytes) + " bytes");
  return false;
}

Segment::~Segment() {
  lanes_.clear();
  if (memory_ != nullptr) munmap(memory_, kHeadBytes);
  if (file_ >= 0) close(file_);
  const std::scoped_lock lock(OpenMutex());
  const auto known = OpenSegments().find(name_);
  if (known != OpenSegments().end() && known->second.expired()) OpenSegments().erase(known);
}

bool Segment::LockPlace(size_t place) {
  struct flock lock = LockRequest(place, F_WRLCK);
  return Retry([&] { return fcntl(file_, F_SETLK, &lock); }) == 0;
}

std::optional<size_t> Segment::Join(std::string* why) {
  const uint32_t place = memory_->places.fetch_add(1);
  if (place >= kMaxLocalRanks) {
    *why = "more than " + std::to_string(kMaxLocalRanks) + " ranks on this host";
    return {};
  }
  const size_t begin = offsetof(SegmentMemory, records) + place * sizeof(RankRecord);
  if (!ReserveMemory(begin, sizeof(RankRecord), why)) return {};
  if (!LockPlace(place)) {
    *why = Errno("a lock on " + (kFolder + name_));
    return {};
  }
  const std::scoped_lock lock(mutex_);
  joined_here_ |= uint64_t{1} << place;
  return place;
}

bool Segment::IsAlive(size_t place) {
  {
    const std::scoped_lock lock(mutex_);
    if ((joined_here_ >> place & 1) != 0) return true;
  }
  if (memory_->records[place].state.load() != RankRecord::kJoined) return true;
  struct flock lock = LockRequest(place, F_WRLCK);
  // If the lock is free, the process that held it has ended.
  return Retry([&] { return fcntl(file_, F_GETLK, &lock); }) != 0 || lock.l_type != F_UNLCK;
}

Segment::LaneMapping Segment::MapLane(const CudaDriver& driver, size_t from, size_t to,
                                      std::string* why) {
  const size_t number = from * kMaxLocalRanks + to;
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Mapped>& mapped = lanes_[number];
  if (mapped != nullptr) return mapped->mapping();
  auto made = std::make_unique<Mapped>();
  if (!ReserveMemory(kHeadBytes + number * kLaneBytes, kLaneBytes, why) ||
      !made->Map(file_, number, why) || !made->Pin(driver, why)) {
    return {};
  }
  mapped = std::move(made);
  return mapped->mapping();
}

void Segment::Unlink() { unlink((kFolder + name_).c_str()); }

}  // namespace nccltune::sendrecv
