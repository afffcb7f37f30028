// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sendrecv/stand_in/cuda_memory.h"

namespace nccltune::soft {
namespace {

constexpr uint64_t kTrailerMagic = 0x736f'6674'6375'6461;

std::mutex& OpenMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// All mappings of a memfd in a process share one address, so that the thread sanitizer recognises
// shared bytes.
std::map<ino_t, std::weak_ptr<Backing>>& OpenOnes() {
  static auto* const open = new std::map<ino_t, std::weak_ptr<Backing>>;
  return *open;
}

}  // namespace

// Stored in the last page of the memfd.
struct Backing::Trailer {
  uint64_t magic;
  uint64_t bytes;
  int gpu;
  std::atomic<uint32_t> freed;
};

size_t Backing::bytes() const { return trailer_->bytes; }
int Backing::gpu() const { return trailer_->gpu; }
bool Backing::freed() const { return trailer_->freed.load(std::memory_order_relaxed) != 0; }
void Backing::SetFreed() { trailer_->freed.store(1, std::memory_order_relaxed); }

std::shared_ptr<Backing> Backing::Map(int fd, size_t whole) {
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

std::shared_ptr<Backing> Backing::Create(int gpu, size_t bytes) {
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

std::shared_ptr<Backing> Backing::Open(int fd) {
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

Backing::~Backing() {
  munmap(data_, whole_);
  close(fd_);
}

}  // namespace nccltune::soft
