// SPDX-License-Identifier: Apache-2.0
// GPU memory in software that several processes share. Each allocation is a memfd, which ends with
// its last user. The CPU cannot access memory at a device address, as with CUDA.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_

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

// The memory of this process. Thread-safe.
class Memory {
 public:
  static Memory& Get();

  // Sets the start and the id. Returns 0 if there is no room.
  CUdeviceptr Add(Mapping mapping);
  // Reserves a range for cuMemMap; `wanted` may be 0.
  CUdeviceptr Reserve(size_t bytes, size_t alignment, CUdeviceptr wanted);
  bool FreeReservation(CUdeviceptr start, size_t bytes);
  // Maps memory of Kind::kVirtual inside a reservation.
  bool MapInto(Mapping mapping);
  // Removes all mappings of the range. Returns false unless whole mappings fill it.
  bool Unmap(CUdeviceptr start, size_t bytes);
  bool SetAccess(CUdeviceptr start, size_t bytes, int gpu, int flags);

  std::optional<Mapping> Find(CUdeviceptr address) const;
  // Returns false if no mapping of that kind starts there.
  bool Remove(CUdeviceptr start, Kind kind);
  // Removes what ends with the GPU's context: all but virtual memory.
  void RemoveAll(int gpu);
  // Add or remove a reference to an existing import of the same memory by the same GPU.
  CUdeviceptr AddReference(ino_t inode, int gpu);
  bool DropReference(CUdeviceptr start);

  // Returns the bytes that this process has allocated on the GPU.
  size_t Allocated(int gpu) const;
  // Returns the number of allocations and imports, of GPU and of host memory.
  size_t Count() const;

  CUresult AddHost(HostRange range);
  std::optional<HostRange> FindHost(CUdeviceptr address) const;
  CUresult RemoveHost(uintptr_t start, bool registered);

  // Returns the bytes as pieces that the GPU can access, in order. Returns nothing, with a reason,
  // if it cannot access all of them.
  std::vector<Piece> Reach(int gpu, CUdeviceptr address, size_t bytes, bool write,
                           std::string& why) const;
  // Returns whether the address is in the range of device memory.
  bool IsDevice(CUdeviceptr address) const;

 private:
  struct Range {
    size_t bytes = 0;
    bool reserved = false;  // reserved by cuMemAddressReserve
  };
  Memory();
  CUdeviceptr Place(size_t bytes, size_t alignment) const;
  const Mapping* At(CUdeviceptr address) const;

  mutable std::mutex mutex_;
  CUdeviceptr first_ = 0;                // begin of the address range of device memory
  CUdeviceptr arena_ = 0;                // begin of the part that this process allocates from
  std::map<CUdeviceptr, Range> ranges_;  // used ranges
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<uintptr_t, HostRange> host_;
  uint64_t ids_ = 0;
};

std::string HexOf(CUdeviceptr address);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_
