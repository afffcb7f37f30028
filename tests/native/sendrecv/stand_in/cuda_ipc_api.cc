// SPDX-License-Identifier: Apache-2.0
//
// Legacy IPC for memory of cuMemAlloc. The importing process finds the memory as an open file of
// its owner, through /proc.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"

namespace nccltune::soft {
namespace {

constexpr uint64_t kIpcMagic = 0x736f'6674'2069'7063;

struct Handle {
  uint64_t magic = kIpcMagic;
  int process = 0;
  int fd = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Handle) <= sizeof(CUipcMemHandle));

}  // namespace

// The handle is of the whole allocation, for any pointer into it.
CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  SOFT_ENTER_CONTEXT();
  if (Machine::Get().options.Lacks("ipc")) return kNotSupported;
  const std::optional<Mapping> mapping = Memory::Get().Find(pointer);
  if (!mapping || mapping->kind != Kind::kLegacy) return kInvalidValue;
  Handle handle;
  handle.process = getpid();
  handle.fd = mapping->backing->fd();
  handle.inode = mapping->backing->inode();
  handle.bytes = mapping->bytes;
  *out = {};
  std::memcpy(out->reserved, &handle, sizeof handle);
  return kCudaSuccess;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle in, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  const CudaOptions& options = Machine::Get().options;
  if (options.Lacks("ipc")) return kNotSupported;
  Handle handle;
  std::memcpy(&handle, in.reserved, sizeof handle);
  if (handle.magic != kIpcMagic || flags != kIpcLazyEnablePeerAccess) return kInvalidValue;
  if (handle.process == getpid()) return kInvalidContext;
  const int gpu = Current()->gpu;
  // Two threads that open the same handle get one import.
  static auto* const opening = new std::mutex;
  const std::scoped_lock lock(*opening);
  if ((*pointer = Memory::Get().AddReference(handle.inode, gpu)) != 0) return kCudaSuccess;
  const std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about = {};
  std::shared_ptr<Backing> backing;
  // The descriptor's number may belong to another file by now.
  if (fd >= 0 && fstat(fd, &about) == 0 && about.st_ino == handle.inode) {
    backing = Backing::Open(fd);
  }
  if (fd >= 0) close(fd);
  if (backing == nullptr || backing->freed()) return kInvalidValue;
  if (backing->gpu() != gpu && options.Lacks("peer")) return kPeerAccessUnsupported;
  Mapping mapping;
  mapping.bytes = handle.bytes;
  mapping.backing = std::move(backing);
  mapping.kind = Kind::kImported;
  mapping.gpu = gpu;
  *pointer = Memory::Get().Add(std::move(mapping));
  return *pointer == 0 ? kOutOfMemory : kCudaSuccess;
}

// Waits for all streams, as CUDA does (driver 580).
CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SOFT_ENTER_CONTEXT();
  SynchronizeContext(*Current());
  return Memory::Get().DropReference(pointer) ? kCudaSuccess : kInvalidValue;
}

}  // namespace nccltune::soft
