// SPDX-License-Identifier: Apache-2.0
// GPU memory in software that several processes share. Each allocation is a memfd, which ends with
// its last user. The CPU cannot access memory at a device address, as with CUDA.
#pragma once

#include "sendrecv/stand_in/soft_cuda.h"
#include "standard.h"

namespace nccltune::soft {

inline constexpr size_t kPage = 4096;

inline constexpr size_t kGranularity = size_t{2} << 20;

class Backing {
 public:
  // Null: the system has no memory.
  static std::shared_ptr<Backing> Create(int gpu, size_t bytes);
  // Opens the memory behind a descriptor of any process. The caller keeps the descriptor. Null: not
  // memory of the stand-in.
  static std::shared_ptr<Backing> Open(int fd);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const;
  int gpu() const;
  int fd() const { return fd_; }
  ino_t inode() const { return inode_; }
  // Returns whether its owner has freed it. Importers must not use it after that.
  bool freed() const;
  void SetFreed();

 private:
  struct Trailer;
  Backing() = default;
  static std::shared_ptr<Backing> Map(int fd, size_t whole);

  int fd_ = -1;
  ino_t inode_ = 0;
  uint8_t* data_ = nullptr;
  size_t whole_ = 0;
  Trailer* trailer_ = nullptr;
};

// Stored in the last page of the memfd.
struct Backing::Trailer {
  uint64_t magic;
  uint64_t bytes;
  int gpu;
  std::atomic<uint32_t> freed;
};

inline size_t Backing::bytes() const { return trailer_->bytes; }

inline int Backing::gpu() const { return trailer_->gpu; }

inline bool Backing::freed() const { return trailer_->freed.load(std::memory_order_relaxed) != 0; }

inline void Backing::SetFreed() { trailer_->freed.store(1, std::memory_order_relaxed); }

inline std::shared_ptr<Backing> Backing::Map(int fd, size_t whole) {
  struct stat about = {};
  void* const data = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED || fstat(fd, &about) != 0) {
    close(fd);
    return nullptr;
  }
  const std::shared_ptr<Backing> backing(new Backing);
  backing->fd_ = fd;
  backing->inode_ = about.st_ino;
  backing->data_ = static_cast<uint8_t*>(data);
  backing->whole_ = whole;
  backing->trailer_ = reinterpret_cast<Trailer*>(backing->data_ + whole - kPage);
  return backing;
}

inline constexpr uint64_t kTrailerMagic = 0x736f'6674'6375'6461;

inline std::mutex& OpenMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// All mappings of a memfd in a process share one address, so that the thread sanitizer recognises
// shared bytes.
inline std::map<ino_t, std::weak_ptr<Backing>>& OpenOnes() {
  static auto* const open = new std::map<ino_t, std::weak_ptr<Backing>>;
  return *open;
}

inline std::shared_ptr<Backing> Backing::Create(int gpu, size_t bytes) {
  const int fd = memfd_create("soft-cuda", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  const size_t whole = (bytes + kPage - 1) / kPage * kPage + kPage;
  if (ftruncate(fd, static_cast<off_t>(whole)) != 0) {
    close(fd);
    return nullptr;
  }
  const std::shared_ptr<Backing> backing = Map(fd, whole);
  if (backing == nullptr) return nullptr;
  backing->trailer_->bytes = bytes;
  backing->trailer_->gpu = gpu;
  backing->trailer_->magic = kTrailerMagic;
  const std::scoped_lock lock(OpenMutex());
  OpenOnes()[backing->inode_] = backing;
  return backing;
}

inline std::shared_ptr<Backing> Backing::Open(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0 || about.st_size < static_cast<off_t>(kPage)) return nullptr;
  const std::scoped_lock lock(OpenMutex());
  std::weak_ptr<Backing>& known = OpenOnes()[about.st_ino];
  if (std::shared_ptr<Backing> backing = known.lock()) return backing;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  std::shared_ptr<Backing> backing = Map(own, static_cast<size_t>(about.st_size));
  if (backing == nullptr || backing->trailer_->magic != kTrailerMagic) return nullptr;
  known = backing;
  return backing;
}

inline Backing::~Backing() {
  munmap(data_, whole_);
  close(fd_);
}

enum class Kind { kLegacy, kPool, kImported, kVirtual };

struct Mapping {
  CUdeviceptr start = 0;
  size_t bytes = 0;
  size_t offset = 0;
  std::shared_ptr<Backing> backing;
  Kind kind = Kind::kLegacy;
  uint64_t id = 0;       // CU_POINTER_ATTRIBUTE_BUFFER_ID
  int gpu = 0;           // the GPU in whose context it was created
  uint64_t readers = 0;  // kVirtual: GPUs with access, as bits
  uint64_t writers = 0;
  int references = 1;   // for kImported
  uint64_t handle = 0;  // for kVirtual
};

struct HostRange {
  uintptr_t start = 0;
  size_t bytes = 0;
  bool registered = false;  // registered host memory, not allocated by CUDA
  uint64_t id = 0;
  int gpu = 0;
};

// Bytes at an address that the CPU can access, and a reference that keeps them.
struct Piece {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  int gpu = -1;  // -1: host memory
  std::shared_ptr<Backing> keeps;
};

inline constexpr size_t kArena = size_t{64} << 30;

// How far apart the addresses of two processes may begin.
inline constexpr size_t kShift = size_t{32} << 20;

inline constexpr size_t kShifts = 509;

inline constexpr size_t kSmall = 512;

inline std::string HexOf(CUdeviceptr address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", address);
  return text;
}

// The memory of this process. Thread-safe.
class Memory {
 public:
  static Memory& Get() {
    static auto* const memory = new Memory;
    return *memory;
  }

  // Sets the start and the id. Returns 0 if there is no room.
  CUdeviceptr Add(Mapping mapping) {
    const std::scoped_lock lock(mutex_);
    const size_t alignment = mapping.bytes >= kGranularity / 2 ? kGranularity : kSmall;
    mapping.start = Place(mapping.bytes, alignment);
    if (mapping.start == 0) return 0;
    mapping.id = ++ids_;
    ranges_[mapping.start] = {.bytes = mapping.bytes};
    const CUdeviceptr start = mapping.start;
    mappings_[start] = std::move(mapping);
    return start;
  }
  // Reserves a range for cuMemMap; `wanted` may be 0.
  CUdeviceptr Reserve(size_t bytes, size_t alignment, CUdeviceptr /*a hint*/) {
    const std::scoped_lock lock(mutex_);
    const CUdeviceptr start = Place(bytes, std::max(alignment, kGranularity));
    if (start != 0) ranges_[start] = {.bytes = bytes, .reserved = true};
    return start;
  }
  bool FreeReservation(CUdeviceptr start, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto found = ranges_.find(start);
    if (found == ranges_.end() || !found->second.reserved || found->second.bytes != bytes) {
      return false;
    }
    const auto next = mappings_.lower_bound(start);
    if (next != mappings_.end() && next->first < start + bytes) return false;
    ranges_.erase(found);
    return true;
  }
  // Maps memory of Kind::kVirtual inside a reservation.
  bool MapInto(Mapping mapping) {
    const std::scoped_lock lock(mutex_);
    const CUdeviceptr end = mapping.start + mapping.bytes;
    auto range = ranges_.upper_bound(mapping.start);
    if (range == ranges_.begin()) return false;
    --range;
    if (!range->second.reserved || end > range->first + range->second.bytes) return false;
    const auto next = mappings_.lower_bound(mapping.start);
    if (next != mappings_.end() && next->first < end) return false;
    if (At(mapping.start) != nullptr) return false;
    mapping.id = ++ids_;
    const CUdeviceptr start = mapping.start;
    mappings_[start] = std::move(mapping);
    return true;
  }
  // Removes all mappings of the range. Returns false unless whole mappings fill it.
  bool Unmap(CUdeviceptr start, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto first = mappings_.find(start);
    auto last = first;
    CUdeviceptr at = start;
    for (; last != mappings_.end() && last->first == at && at < start + bytes; ++last) {
      if (last->second.kind != Kind::kVirtual) return false;
      at += last->second.bytes;
    }
    if (at != start + bytes) return false;
    mappings_.erase(first, last);
    return true;
  }
  bool SetAccess(CUdeviceptr start, size_t bytes, int gpu, int flags) {
    const std::scoped_lock lock(mutex_);
    const uint64_t bit = uint64_t{1} << gpu;
    CUdeviceptr at = start;
    while (at < start + bytes) {
      const auto found = mappings_.find(at);
      if (found == mappings_.end() || found->second.kind != Kind::kVirtual) return false;
      Mapping& mapping = found->second;
      mapping.readers = (flags & 1) != 0 ? mapping.readers | bit : mapping.readers & ~bit;
      mapping.writers = (flags & 2) != 0 ? mapping.writers | bit : mapping.writers & ~bit;
      at += mapping.bytes;
    }
    return at == start + bytes;
  }

  std::optional<Mapping> Find(CUdeviceptr address) const {
    const std::scoped_lock lock(mutex_);
    const Mapping* const mapping = At(address);
    return mapping == nullptr ? std::nullopt : std::optional<Mapping>(*mapping);
  }
  // Returns false if no mapping of that kind starts there.
  bool Remove(CUdeviceptr start, Kind kind) {
    const std::scoped_lock lock(mutex_);
    const auto found = mappings_.find(start);
    if (found == mappings_.end() || found->second.kind != kind) return false;
    if (kind != Kind::kImported) found->second.backing->SetFreed();
    mappings_.erase(found);
    ranges_.erase(start);
    return true;
  }
  // Removes what ends with the GPU's context: all but virtual memory.
  void RemoveAll(int gpu) {
    const std::scoped_lock lock(mutex_);
    for (auto at = mappings_.begin(); at != mappings_.end();) {
      const Mapping& mapping = at->second;
      if (mapping.gpu != gpu || mapping.kind == Kind::kVirtual) {
        ++at;
        continue;
      }
      if (mapping.kind != Kind::kImported) mapping.backing->SetFreed();
      ranges_.erase(at->first);
      at = mappings_.erase(at);
    }
  }
  // Add or remove a reference to an existing import of the same memory by the same GPU.
  CUdeviceptr AddReference(ino_t inode, int gpu) {
    const std::scoped_lock lock(mutex_);
    for (auto& [start, mapping] : mappings_) {
      if (mapping.kind == Kind::kImported && mapping.gpu == gpu &&
          mapping.backing->inode() == inode) {
        ++mapping.references;
        return start;
      }
    }
    return 0;
  }
  bool DropReference(CUdeviceptr start) {
    {
      const std::scoped_lock lock(mutex_);
      const auto found = mappings_.find(start);
      if (found == mappings_.end() || found->second.kind != Kind::kImported) return false;
      if (--found->second.references > 0) return true;
    }
    return Remove(start, Kind::kImported);
  }

  // Returns the bytes that this process has allocated on the GPU.
  size_t Allocated(int gpu) const {
    const std::scoped_lock lock(mutex_);
    size_t bytes = 0;
    for (const auto& [start, mapping] : mappings_) {
      const bool own = mapping.kind == Kind::kLegacy || mapping.kind == Kind::kPool;
      if (own && mapping.gpu == gpu) bytes += mapping.bytes;
    }
    return bytes;
  }
  // Returns the number of allocations and imports, of GPU and of host memory.
  size_t Count() const {
    const std::scoped_lock lock(mutex_);
    return mappings_.size() + host_.size();
  }

  CUresult AddHost(HostRange range) {
    const std::scoped_lock lock(mutex_);
    const auto next = host_.lower_bound(range.start);
    if (next != host_.end() && next->first < range.start + range.bytes) {
      return kHostMemoryAlreadyRegistered;
    }
    if (next != host_.begin()) {
      const HostRange& before = std::prev(next)->second;
      if (before.start + before.bytes > range.start) return kHostMemoryAlreadyRegistered;
    }
    range.id = ++ids_;
    host_[range.start] = range;
    return kCudaSuccess;
  }
  std::optional<HostRange> FindHost(CUdeviceptr address) const {
    const std::scoped_lock lock(mutex_);
    auto found = host_.upper_bound(address);
    if (found == host_.begin()) return std::nullopt;
    const HostRange& range = (--found)->second;
    return address < range.start + range.bytes ? std::optional<HostRange>(range) : std::nullopt;
  }
  CUresult RemoveHost(uintptr_t start, bool registered) {
    const std::scoped_lock lock(mutex_);
    const auto found = host_.find(start);
    if (found == host_.end() || found->second.registered != registered) {
      return registered ? kHostMemoryNotRegistered : kInvalidValue;
    }
    host_.erase(found);
    return kCudaSuccess;
  }

  // Returns the bytes as pieces that the GPU can access, in order. Returns nothing, with a reason,
  // if it cannot access all of them.
  std::vector<Piece> Reach(int gpu, CUdeviceptr address, size_t bytes, bool write,
                           std::string& why) const;
  // Returns whether the address is in the range of device memory.
  bool IsDevice(CUdeviceptr address) const {
    return address >= first_ && address < first_ + kArena;
  }

 private:
  struct Range {
    size_t bytes = 0;
    bool reserved = false;  // reserved by cuMemAddressReserve
  };
  Memory() {
    void* const arena =
        mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) std::abort();
    first_ = reinterpret_cast<uintptr_t>(arena);
    // Each process begins at another offset. So an address of one process is not valid in another,
    // not even in a child of the same parent.
    arena_ = (first_ + kGranularity - 1) / kGranularity * kGranularity +
             static_cast<size_t>(getpid()) % kShifts * kShift;
  }
  CUdeviceptr Place(size_t bytes, size_t alignment) const {
    CUdeviceptr at = arena_ + kGranularity;
    for (const auto& [start, range] : ranges_) {
      if (at + bytes <= start) break;
      at = std::max(at, (start + range.bytes + alignment - 1) / alignment * alignment);
    }
    return at + bytes <= first_ + kArena - kGranularity ? at : 0;
  }
  const Mapping* At(CUdeviceptr address) const {
    auto found = mappings_.upper_bound(address);
    if (found == mappings_.begin()) return nullptr;
    const Mapping& mapping = (--found)->second;
    return address < mapping.start + mapping.bytes ? &mapping : nullptr;
  }

  mutable std::mutex mutex_;
  CUdeviceptr first_ = 0;                // begin of the address range of device memory
  CUdeviceptr arena_ = 0;                // begin of the part that this process allocates from
  std::map<CUdeviceptr, Range> ranges_;  // used ranges
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<uintptr_t, HostRange> host_;
  uint64_t ids_ = 0;
};

inline bool IsMapped(CUdeviceptr address, size_t bytes) {
  const uintptr_t first = address / kPage * kPage;
  const size_t pages = (address + bytes - first + kPage - 1) / kPage;
  std::vector<unsigned char> resident(pages);
  return mincore(reinterpret_cast<void*>(first), pages * kPage, resident.data()) == 0;
}

inline std::vector<Piece> Memory::Reach(int gpu, CUdeviceptr address, size_t bytes, bool write,
                                        std::string& why) const {
  std::vector<Piece> pieces;
  if (!IsDevice(address)) {
    if (!FindHost(address) && !IsMapped(address, bytes)) {
      why = HexOf(address) + " is not mapped";
      return pieces;
    }
    pieces.push_back({reinterpret_cast<uint8_t*>(address), bytes, -1, nullptr});
    return pieces;
  }
  const std::scoped_lock lock(mutex_);
  const CUdeviceptr end = address + bytes;
  for (CUdeviceptr at = address; at < end;) {
    const Mapping* const mapping = At(at);
    const uint64_t bit = uint64_t{1} << gpu;
    if (mapping == nullptr) {
      why = HexOf(at) + " is not mapped";
    } else if (mapping->kind == Kind::kImported && mapping->backing->freed()) {
      why = HexOf(at) + " is an import of memory that its owner freed";
    } else if (mapping->kind == Kind::kVirtual &&
               ((write ? mapping->writers : mapping->readers) & bit) == 0) {
      why = HexOf(at) + " is not for GPU " + std::to_string(gpu);
    } else if (!pieces.empty() && mapping->kind != Kind::kVirtual) {
      why = HexOf(address) + " and what follows are two allocations";
    }
    if (!why.empty()) return {};
    const size_t skip = at - mapping->start;
    const size_t part = std::min<size_t>(mapping->bytes - skip, end - at);
    pieces.push_back({.data = mapping->backing->data() + mapping->offset + skip,
                      .bytes = part,
                      .gpu = mapping->backing->gpu(),
                      .keeps = mapping->backing});
    at += part;
  }
  return pieces;
}

}  // namespace nccltune::soft
