// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/peers/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <utility>

#include "common/content_hash.h"
#include "common/file.h"
#include "common/retry.h"
#include "sendrecv/log.h"

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
constexpr std::string_view kPrefix = "nccltune-sendrecv-";
// The ranks of a host take at most this part of the free shared memory: others need it as well.
constexpr uint64_t kLeastParts = 4;
// A file that nobody has locked for so long belongs to no process: a rank takes its place as soon
// as it has opened the file.
constexpr time_t kStaleAfter = 60;
std::atomic<uint64_t> g_taken = 0;
std::atomic<size_t> g_ranks = 1;  // most ranks of a communicator on this host so far

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
  name << "/" << kPrefix << SegmentMemory::kLayout << "-" << std::hex << std::setfill('0')
       << std::setw(16) << ContentHash(key);
  return name.str();
}

std::string Errno(const std::string& what) { return what + ": " + std::strerror(errno); }

// Each place has a file lock on one byte. The lock belongs to the process: it ends with the
// process, and forked children neither keep it nor release it.
struct flock LockRequest(size_t place, off_t places = 1) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place);
  lock.l_len = places;
  return lock;
}

bool IsLocked(int file, struct flock lock) {
  return Retry([&] { return fcntl(file, F_GETLK, &lock); }) != 0 || lock.l_type != F_UNLCK;
}

// Removes the files of processes that were killed while NCCL created their communicators. Call this
// only while this process has no such file open: closing a descriptor would end its locks.
void RemoveStaleFiles() {
  RemoveOldFiles(kFolder, kPrefix, "", kStaleAfter,
                 [](int file) { return IsLocked(file, LockRequest(0, kMaxLocalRanks)); });
}

}  // namespace

struct Segment::Mapped {
  LaneMemory* memory = nullptr;
  std::unique_ptr<PinnedMemory> pinned;

  explicit Mapped(size_t size) : bytes(size) {}
  size_t bytes = 0;

  bool Map(int file, size_t number, std::string* why) {
    const auto offset = static_cast<off_t>(kHeadBytes + number * kLaneBytes);
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    if (at == MAP_FAILED) {
      *why = Errno("mmap");
      return false;
    }
    memory = static_cast<LaneMemory*>(at);
    return true;
  }
  bool Pin(const CudaDriver& driver, std::string* why) {
    pinned = std::make_unique<PinnedMemory>(driver, memory, bytes);
    if (*pinned) return true;
    *why = "CUDA cannot register it (cuMemHostRegister)";
    return false;
  }
  LaneMapping mapping() const {
    return {.memory = memory, .sums = reinterpret_cast<Sums*>(memory + 1)};
  }
  ~Mapped() {
    pinned.reset();
    if (memory != nullptr) munmap(memory, bytes);
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
  static bool first = true;
  if (std::exchange(first, false)) RemoveStaleFiles();
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
  if (!TakeShare(offsetof(SegmentMemory, records), why) ||
      !ReserveMemory(0, offsetof(SegmentMemory, records), why)) {
    return false;
  }
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

// Counts shared memory of this process. Returns false if the ranks of this host would take more
// than their share of what is free. Two ranks count half of their lane each. Logs one warning.
bool Segment::TakeShare(size_t bytes, std::string* why) {
  struct statvfs found = {};
  if (fstatvfs(file_, &found) != 0) return true;
  const uint64_t free = uint64_t{found.f_bavail} * found.f_frsize;
  size_t ranks = g_ranks.load();
  if (memory_ != nullptr && places() > ranks) g_ranks.store(ranks = places());
  const uint64_t taken = g_taken.load();
  if ((taken + bytes) * ranks * kLeastParts <= free + taken) {
    g_taken += bytes;
    taken_ += bytes;
    return true;
  }
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true)) {
    Warn("/dev/shm has " + std::to_string(free >> 10U) + " of " +
         std::to_string((uint64_t{found.f_blocks} * found.f_frsize) >> 10U) +
         " KiB free, of which " + std::to_string(ranks) +
         " ranks take at most a quarter; NCCL carries the messages of further communicators "
         "and peers. Give containers more (docker run --shm-size)");
  }
  why->clear();
  return false;
}

// Without reserved memory the first write could raise SIGBUS. posix_fallocate is not used: if the
// file system lacks fallocate, posix_fallocate writes to the file.
bool Segment::ReserveMemory(size_t begin, size_t bytes, std::string* why) {
  const int result = Retry(
      [&] { return fallocate(file_, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)); });
  if (result == 0) return true;
  *why = Errno(kFolder + std::string(" has no room for ") + std::to_string(bytes) + " bytes");
  return false;
}

Segment::~Segment() {
  lanes_.clear();
  g_taken -= taken_;
  if (memory_ != nullptr) munmap(memory_, kHeadBytes);
  if (file_ >= 0) close(file_);
  const std::scoped_lock lock(OpenMutex());
  const auto known = OpenSegments().find(name_);
  if (known != OpenSegments().end() && known->second.expired()) OpenSegments().erase(known);
}

bool Segment::LockPlace(size_t place) {
  struct flock lock = LockRequest(place);
  return Retry([&] { return fcntl(file_, F_SETLK, &lock); }) == 0;
}

std::optional<size_t> Segment::Join(std::string* why) {
  const uint32_t place = memory_->places.fetch_add(1);
  if (place >= kMaxLocalRanks) {
    *why = "more than " + std::to_string(kMaxLocalRanks) + " ranks on this host";
    return {};
  }
  const size_t begin = offsetof(SegmentMemory, records) + place * sizeof(RankRecord);
  if (!TakeShare(sizeof(RankRecord), why) || !ReserveMemory(begin, sizeof(RankRecord), why)) {
    return {};
  }
  if (!LockPlace(place)) {
    *why = Errno("a lock on " + (kFolder + name_));
    return {};
  }
  const std::scoped_lock lock(mutex_);
  joined_here_ |= uint64_t{1} << place;
  return place;
}

void Segment::KeepPlaces() {
  const std::scoped_lock lock(mutex_);
  for (size_t place = 0; place < kMaxLocalRanks; ++place) {
    if ((joined_here_ >> place & 1) != 0) LockPlace(place);
  }
}

bool Segment::IsAlive(size_t place) {
  {
    const std::scoped_lock lock(mutex_);
    if ((joined_here_ >> place & 1) != 0) return true;
  }
  if (memory_->records[place].state.load() != RankRecord::kJoined) return true;
  // If the lock is free, the process that held it has ended.
  return IsLocked(file_, LockRequest(place));
}

Segment::LaneMapping Segment::MapLane(const CudaDriver& driver, size_t from, size_t to,
                                      LaneParts parts, std::string* why) {
  const size_t number = from * kMaxLocalRanks + to;
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<Mapped>& mapped = lanes_[number];
  if (mapped != nullptr) return mapped->mapping();
  const size_t used = parts.sums     ? sizeof(LaneMemory) + sizeof(Sums)
                      : parts.graphs ? sizeof(LaneMemory)
                                     : offsetof(LaneMemory, graph_flags);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto made = std::make_unique<Mapped>((used + page - 1) / page * page);
  if (!TakeShare(made->bytes / 2, why) ||
      !ReserveMemory(kHeadBytes + number * kLaneBytes, made->bytes, why) ||
      !made->Map(file_, number, why) || !made->Pin(driver, why)) {
    return {};
  }
  mapped = std::move(made);
  return mapped->mapping();
}

void Segment::Unlink() { unlink((kFolder + name_).c_str()); }

// Uses the entries in a cycle, so that a withdrawn entry is not filled again at once. A peer may be
// reading the entry at that moment.
ExportEntry* ExportTable::FindFree() {
  for (size_t i = 0; i < RankRecord::kExports; ++i) {
    ExportEntry& entry = record_.exports[(next_ + i) % RankRecord::kExports];
    if (entry.number.load() != 0) continue;
    next_ = (next_ + i + 1) % RankRecord::kExports;
    return &entry;
  }
  return nullptr;
}

void ExportTable::Publish(ExportEntry* entry) {
  entry->wanted.store(0);
  entry->imported.store(0);
  entry->refused.store(0);
  entry->number.store(++made_);
}

void ExportTable::Withdraw(ExportEntry* entry) {
  entry->number.store(0);
  NotifyPeers();
}

ExportLookup ExportTable::Request(ExportEntry* entry, uint64_t offset, size_t peer) {
  ExportLookup lookup = {
      .status = ExportStatus::kPending, .number = entry->number.load(), .offset = offset};
  if ((entry->wanted.fetch_or(PlaceBit(peer)) & PlaceBit(peer)) == 0) NotifyPeers();
  if ((entry->imported.load() & PlaceBit(peer)) != 0) lookup.status = ExportStatus::kMapped;
  if ((entry->refused.load() & PlaceBit(peer)) != 0) lookup.status = ExportStatus::kRefused;
  return lookup;
}

}  // namespace nccltune::sendrecv
