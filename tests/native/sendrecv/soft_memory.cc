// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/soft_memory.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <iterator>

namespace nccltune::sendrecv {
namespace {

// The least distance between two allocations. An access past the end never reaches another one.
constexpr DeviceAddress kGap = DeviceAddress{2} << 20;
constexpr uint8_t kFresh = 0xEE;

}  // namespace

std::string Hex(DeviceAddress address) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, address);
  return text.data();
}

DeviceAddress SoftMemory::NextAddress(size_t bytes) {
  const DeviceAddress at = next_;
  next_ += (bytes + kGap - 1) / kGap * kGap + kGap;
  return at;
}

void SoftMemory::Put(DeviceAddress at, int process, int gpu, size_t bytes) {
  const auto allocation = std::make_shared<Allocation>();
  allocation->number = ++allocations_;
  allocation->process = process;
  allocation->gpu = gpu;
  allocation->bytes.assign(bytes, kFresh);
  mappings_[at] = {.process = process, .bytes = bytes, .allocation = allocation};
}

DeviceAddress SoftMemory::Allocate(int process, int gpu, size_t bytes) {
  if (bytes == 0) return 0;
  const DeviceAddress at = NextAddress(bytes);
  Put(at, process, gpu, bytes);
  return at;
}

const std::pair<const DeviceAddress, SoftMemory::Mapping>* SoftMemory::At(
    DeviceAddress address) const {
  const auto after = mappings_.upper_bound(address);
  return after == mappings_.begin() ? nullptr : &*std::prev(after);
}

bool SoftMemory::AllocateAt(int process, int gpu, DeviceAddress at, size_t bytes) {
  const auto* const there = At(at);
  if (bytes == 0 || there == nullptr || there->second.process != process ||
      there->second.imported || !there->second.allocation->freed ||
      at - there->first >= there->second.bytes ||
      bytes > there->second.bytes - (at - there->first)) {
    return false;
  }
  // The parts before and after the new allocation stay unmapped.
  const DeviceAddress start = there->first;
  mappings_.erase(start);
  Put(at, process, gpu, bytes);
  return true;
}

bool SoftMemory::Free(int process, DeviceAddress address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || found->second.process != process || found->second.imported ||
      found->second.allocation->freed) {
    return false;
  }
  found->second.allocation->freed = true;
  std::vector<uint8_t>().swap(found->second.allocation->bytes);
  return true;
}

DeviceAddress SoftMemory::Import(int process, int owner, DeviceAddress address) {
  std::string why;
  if (Find(owner, address, 0, why) == nullptr) return 0;
  const auto* const there = At(address);
  const DeviceAddress at = NextAddress(there->second.bytes);
  mappings_[at] = {.process = process,
                   .bytes = there->second.bytes,
                   .imported = true,
                   .allocation = there->second.allocation};
  return at + (address - there->first);
}

bool SoftMemory::Unmap(int process, DeviceAddress start) {
  const auto found = mappings_.find(start);
  if (found == mappings_.end() || found->second.process != process || !found->second.imported ||
      found->second.unmapped) {
    return false;
  }
  found->second.unmapped = true;
  return true;
}

void SoftMemory::Kill(int process) {
  for (auto& [start, mapping] : mappings_) {
    if (mapping.process == process) mapping.unmapped = true;
  }
}

std::string SoftMemory::NameOf(const Mapping& mapping) {
  const Allocation& allocation = *mapping.allocation;
  return "allocation " + std::to_string(allocation.number) + " (" + std::to_string(mapping.bytes) +
         " bytes on GPU " + std::to_string(allocation.gpu) + ", process " +
         std::to_string(allocation.process) + ")";
}

std::optional<int> SoftMemory::GpuOf(DeviceAddress address) const {
  const auto* const there = At(address);
  if (there == nullptr) return std::nullopt;
  return there->second.allocation->gpu;
}

uint8_t* SoftMemory::Find(int process, DeviceAddress address, size_t bytes, std::string& why) {
  const auto* const there = At(address);
  if (there == nullptr) {
    why = "nothing is there";
    return nullptr;
  }
  const Mapping& mapping = there->second;
  const size_t offset = address - there->first;
  if (offset > mapping.bytes || bytes > mapping.bytes - offset) {
    why = std::to_string(offset + bytes - mapping.bytes) + " bytes past the end of " +
          NameOf(mapping);
  } else if (mapping.process != process) {
    why = "not reachable: " + NameOf(mapping) + " as process " + std::to_string(mapping.process) +
          " sees it";
  } else if (mapping.allocation->freed) {
    why = NameOf(mapping) + " was freed";
  } else if (mapping.unmapped) {
    why = NameOf(mapping) + " was unmapped";
  } else {
    return mapping.allocation->bytes.data() + offset;
  }
  return nullptr;
}

}  // namespace nccltune::sendrecv
