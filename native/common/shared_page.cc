// SPDX-License-Identifier: Apache-2.0
#include "common/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <new>

#include "common/text.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // since Linux 6.3
#endif

namespace nccltune {
namespace {

constexpr std::align_val_t kAlignment{64};

int NamedMemory(const char* name) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // If vm.memfd_noexec is set, MFD_NOEXEC_SEAL is required. Linux before 6.3 does not know this
  // flag.
  const int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create(name, flags);
}

// Returns whether RLIMIT_FSIZE allows a file of `bytes` bytes. Exceeding this limit would raise a
// signal.
bool Allowed(size_t bytes) {
  rlimit limit = {};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes);
}

}  // namespace

SharedPage::SharedPage(const char* name, size_t bytes) : bytes_(bytes) {
  memory_ = Shared(name);
  if (memory_ == nullptr) memory_ = std::memset(::operator new(bytes, kAlignment), 0, bytes);
}

SharedPage::~SharedPage() {
  if (shared_) {
    munmap(memory_, bytes_);
  } else {
    ::operator delete(memory_, kAlignment);
  }
}

// Returns shared memory, or null with the reason in `hidden_`.
void* SharedPage::Shared(const char* name) {
  const auto fail = [&](const char* what, int error) {
    hidden_ = std::string(what) + ": " + ErrorWords(error);
    shared_.Close();
    return nullptr;
  };
  if (!Allowed(bytes_)) return fail("the limit of a file's size", EFBIG);
  shared_ = Descriptor(NamedMemory(name));
  if (!shared_) return fail("memfd_create", errno);
  // Allocate the memory now, so that later writes cannot fail.
  if (fallocate(shared_.fd(), 0, 0, static_cast<off_t>(bytes_)) != 0) {
    return fail("fallocate", errno);
  }
  // Seal the file: no process that opens it can shrink it while we use it.
  (void)fcntl(shared_.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, shared_.fd(), 0);
  return memory == MAP_FAILED ? fail("mmap", errno) : memory;
}

}  // namespace nccltune
