// SPDX-License-Identifier: Apache-2.0
//
// Memory of GPUs in software, which several processes share: bytes in a memfd each, which dies with
// those who have it. The CPU cannot touch what stands at a device address, as with CUDA.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::soft {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kGranularity = size_t{2} << 20;

class Backing {
 public:
  // Null: the system has none.
  static std::shared_ptr<Backing> Create(int gpu, size_t bytes);
  // What an fd of any process names; the fd stays the caller's. Null: no memory of ours.
  static std::shared_ptr<Backing> Open(int fd);
  ~Backing();
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const;
  int gpu() const;
  int fd() const { return fd_; }
  ino_t inode() const { return inode_; }
  // Its owner freed it: who imported it must not use it any more.
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
  int gpu = 0;           // in whose context it was made
  uint64_t readers = 0;  // kVirtual: GPUs, as bits
  uint64_t writers = 0;
  int references = 1;   // kImported
  uint64_t handle = 0;  // kVirtual
};

struct HostRange {
  uintptr_t start = 0;
  size_t bytes = 0;
  bool registered = false;  // or allocated
  uint64_t id = 0;
  int gpu = 0;
};

// Bytes as a CPU reaches them, and what keeps them.
struct Piece {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  int gpu = -1;  // -1: of the host
  std::shared_ptr<Backing> keeps;
};

// Of this process. For any thread.
class Memory {
 public:
  static Memory& Get();

  // Fills in start and id. 0: there is no room.
  CUdeviceptr Add(Mapping mapping);
  // A range for cuMemMap; `wanted` may be 0.
  CUdeviceptr Reserve(size_t bytes, size_t alignment, CUdeviceptr wanted);
  bool FreeReservation(CUdeviceptr start, size_t bytes);
  // Of Kind::kVirtual, within a reservation.
  bool MapInto(Mapping mapping);
  // All mappings of the range. False: it does not hold whole ones that fill it.
  bool Unmap(CUdeviceptr start, size_t bytes);
  bool SetAccess(CUdeviceptr start, size_t bytes, int gpu, int flags);

  std::optional<Mapping> Find(CUdeviceptr address) const;
  // False: no start of a mapping of that kind.
  bool Remove(CUdeviceptr start, Kind kind);
  // An import of the same memory by the same GPU: one reference more or less.
  CUdeviceptr AddReference(ino_t inode, int gpu);
  bool DropReference(CUdeviceptr start);

  CUresult AddHost(HostRange range);
  std::optional<HostRange> FindHost(CUdeviceptr address) const;
  CUresult RemoveHost(uintptr_t start, bool registered);

  // Where the GPU finds these bytes, in order. Empty, with a reason: it does not.
  std::vector<Piece> Reach(int gpu, CUdeviceptr address, size_t bytes, bool write,
                           std::string& why) const;
  // Within device memory's addresses.
  bool IsDevice(CUdeviceptr address) const;

 private:
  struct Range {
    size_t bytes = 0;
    bool reserved = false;  // by cuMemAddressReserve
  };
  Memory();
  CUdeviceptr Place(size_t bytes, size_t alignment) const;
  const Mapping* At(CUdeviceptr address) const;

  mutable std::mutex mutex_;
  CUdeviceptr first_ = 0;                // of what is kept for device addresses
  CUdeviceptr arena_ = 0;                // of what is given
  std::map<CUdeviceptr, Range> ranges_;  // what of the arena is taken
  std::map<CUdeviceptr, Mapping> mappings_;
  std::map<uintptr_t, HostRange> host_;
  uint64_t ids_ = 0;
};

std::string HexOf(CUdeviceptr address);

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MEMORY_H_
