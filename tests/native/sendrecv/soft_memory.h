// SPDX-License-Identifier: Apache-2.0
//
// Memory of GPUs in software: real bytes at addresses that are made up, so that an address that is
// not of the process, or of memory that is gone, is found out.
#ifndef NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_
#define NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

std::string Hex(DeviceAddress address);

// Not for several threads. A process is a number; it reaches what it allocated and what it
// imported.
class SoftMemory {
 public:
  // Of `gpu`, for the process. Full of 0xEE. 0 where no bytes are asked for.
  DeviceAddress Allocate(int process, int gpu, size_t bytes);
  // The same at an address of the process whose memory was freed, as allocators give it again.
  // False: not all of it is free.
  bool AllocateAt(int process, int gpu, DeviceAddress at, size_t bytes);
  // At once, whatever is under way: imports of it dangle. False: no start of memory of the process.
  bool Free(int process, DeviceAddress address);

  // Where `process` sees what is at `address` in `owner`, at an address of its own as with IPC.
  // 0: nothing is there.
  DeviceAddress Import(int process, int owner, DeviceAddress address);
  bool Unmap(int process, DeviceAddress start);

  // The process is gone. Its memory stays for those who imported it.
  void Kill(int process);

  // Null, and why in `why`: these bytes are not, or not all, within memory that the process
  // reaches.
  uint8_t* Find(int process, DeviceAddress address, size_t bytes, std::string& why);

 private:
  struct Allocation {
    int number = 0;
    int process = 0;
    int gpu = 0;
    std::vector<uint8_t> bytes;
    bool freed = false;
  };
  // Kept when it is gone, to name what was there.
  struct Mapping {
    int process = 0;
    size_t bytes = 0;
    bool imported = false;
    bool unmapped = false;
    std::shared_ptr<Allocation> allocation;
  };

  // The last that starts at or before the address; null: none does.
  const std::pair<const DeviceAddress, Mapping>* At(DeviceAddress address) const;
  DeviceAddress NextAddress(size_t bytes);
  void Put(DeviceAddress at, int process, int gpu, size_t bytes);
  static std::string NameOf(const Mapping& mapping);

  std::map<DeviceAddress, Mapping> mappings_;  // by start; no two overlap
  DeviceAddress next_ = 0x7000'0000'0000;
  int allocations_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_SOFT_MEMORY_H_
