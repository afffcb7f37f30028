// SPDX-License-Identifier: Apache-2.0
//
// GPU memory in software: real bytes at invented addresses. Access to another process's memory or
// to freed memory is detected.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

std::string Hex(DeviceAddress address);

// Not thread-safe. A process is a number; it can access what it allocated and what it imported.
class SoftMemory {
 public:
  // Allocates on `gpu` for the process, filled with 0xEE. Returns 0 for 0 bytes.
  DeviceAddress Allocate(int process, int gpu, size_t bytes);
  // Allocates at an address that the process has freed, as allocators may. Returns false if not all
  // of it is free.
  bool AllocateAt(int process, int gpu, DeviceAddress at, size_t bytes);
  // Frees the memory at once, also if operations use it. Imports of it become invalid. Returns
  // false if no allocation of the process starts there.
  bool Free(int process, DeviceAddress address);

  // Maps the memory at `address` of `owner` into `process`, at another address, like IPC. Returns 0
  // if there is no memory.
  DeviceAddress Import(int process, int owner, DeviceAddress address);
  bool Unmap(int process, DeviceAddress start);

  // Ends the process. Its memory stays for the processes that imported it.
  void Kill(int process);

  // Returns the GPU of the memory, or nothing if nothing is there.
  std::optional<int> GpuOf(DeviceAddress address) const;
  // Returns null if the process cannot access all of these bytes, with the reason in `why`.
  uint8_t* Find(int process, DeviceAddress address, size_t bytes, std::string& why);

 private:
  struct Allocation {
    int number = 0;
    int process = 0;
    int gpu = 0;
    std::vector<uint8_t> bytes;
    bool freed = false;
  };
  // Kept after it is freed, to describe late accesses.
  struct Mapping {
    int process = 0;
    size_t bytes = 0;
    bool imported = false;
    bool unmapped = false;
    std::shared_ptr<Allocation> allocation;
  };

  // Returns the last mapping that starts at or before the address; null: none.
  const std::pair<const DeviceAddress, Mapping>* At(DeviceAddress address) const;
  DeviceAddress NextAddress(size_t bytes);
  void Put(DeviceAddress at, int process, int gpu, size_t bytes);
  static std::string NameOf(const Mapping& mapping);

  std::map<DeviceAddress, Mapping> mappings_;  // by start address; they do not overlap
  DeviceAddress next_ = 0x7000'0000'0000;
  int allocations_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_
