// SPDX-License-Identifier: Apache-2.0
#include "net/stats_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "net/socket.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // since Linux 6.3
#endif

namespace nccltune::net {
namespace {

constexpr size_t kFlowsAt = sizeof(ConnectionBlock);
constexpr std::align_val_t kAlignment{alignof(FlowBlock)};
static_assert(kFlowsAt % alignof(FlowBlock) == 0);

int NamedMemory() {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // If vm.memfd_noexec is set, MFD_NOEXEC_SEAL is required. Linux before 6.3 does not know this
  // flag.
  const int fd = memfd_create(kStatsName, flags | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create(kStatsName, flags);
}

// Returns whether RLIMIT_FSIZE allows a file of `bytes` bytes. Exceeding this limit would raise a
// signal.
bool Allowed(size_t bytes) {
  rlimit limit = {};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

}  // namespace

StatsPage::StatsPage(size_t flows) : bytes_(kFlowsAt + flows * sizeof(FlowBlock)) {
  memory_ = Shared(bytes_);
  if (memory_ == nullptr) memory_ = ::operator new(bytes_, kAlignment);
  connection_ = new (memory_) ConnectionBlock();
  auto* const first = reinterpret_cast<FlowBlock*>(static_cast<std::byte*>(memory_) + kFlowsAt);
  for (size_t i = 0; i < flows; ++i) new (first + i) FlowBlock();
  flows_ = {first, flows};
  connection_->page_bytes = bytes_;
  connection_->connection_bytes = kFlowsAt;
  connection_->flow_bytes = sizeof(FlowBlock);
  connection_->flows = flows;
  connection_->pid = static_cast<uint64_t>(getpid());
}

StatsPage::~StatsPage() {
  if (shared_) {
    munmap(memory_, bytes_);
  } else {
    ::operator delete(memory_, kAlignment);
  }
}

// Returns shared memory, or null with the reason in `hidden_`.
void* StatsPage::Shared(size_t bytes) {
  const auto fail = [&](const char* what, int error) {
    hidden_ = std::string(what) + ": " + ErrorWords(error);
    shared_.Close();
    return nullptr;
  };
  if (!Allowed(bytes)) return fail("the limit of a file's size", EFBIG);
  shared_ = Descriptor(NamedMemory());
  if (!shared_) return fail("memfd_create", errno);
  // Allocate the memory now, so that later writes cannot fail.
  if (fallocate(shared_.fd(), 0, 0, static_cast<off_t>(bytes)) != 0) {
    return fail("fallocate", errno);
  }
  // Seal the file: no process that opens it can shrink it while we use it.
  (void)fcntl(shared_.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared_.fd(), 0);
  return memory == MAP_FAILED ? fail("mmap", errno) : memory;
}

void StatsPage::Publish() {
  uint64_t magic = 0;
  std::memcpy(&magic, kStatsMagic.data(), sizeof(magic));
  connection_->magic = magic;
}

}  // namespace nccltune::net
