// SPDX-License-Identifier: Apache-2.0
#include "net/descriptors.h"

#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>

#include "common/text.h"

namespace nccltune::net {
namespace {

constexpr const char* kOpenFiles = "/proc/self/fd";
// Listing this many entries takes some milliseconds. With a higher limit, open descriptors are not
// counted by listing them.
constexpr uint64_t kLargestListing = 16'384;
constexpr uint64_t kShares = 16;

constinit std::atomic<bool> warned = false;

uint64_t CountEntries() {
  DIR* const folder = opendir(kOpenFiles);
  // opendir needs a descriptor. If it gets none, all descriptors are in use.
  if (folder == nullptr) return IsDescriptorShortage(errno) ? UINT64_MAX : 0;
  uint64_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  // Do not count ".", ".." and the descriptor of the listing.
  return count > 3 ? count - 3 : 0;
}

}  // namespace

uint64_t RaiseDescriptorLimit(uint64_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t target = std::min<rlim_t>(wanted, limit.rlim_max);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= target) return 0;
  limit.rlim_cur = target;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? target : 0;
}

DescriptorUse ReadDescriptorUse() {
  DescriptorUse use;
  rlimit limit = {};
  use.limit = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
  struct stat folder = {};
  // Since Linux 6.2 the size of the directory is the number of open descriptors.
  if (stat(kOpenFiles, &folder) == 0 && folder.st_size > 0) {
    use.used = static_cast<uint64_t>(folder.st_size);
  } else if (use.limit <= kLargestListing) {
    use.used = std::min(CountEntries(), use.limit);
  }
  return use;
}

uint64_t DescriptorShare(uint64_t wanted, uint64_t least) {
  return std::clamp(ReadDescriptorUse().free() / kShares, std::min(least, wanted), wanted);
}

bool IsDescriptorShortage(int error) { return error == EMFILE || error == ENFILE; }

std::string ShortageText(const char* what, int error) {
  const std::string begin =
      std::string(what) + ": " + (error != 0 ? ErrorWords(error) : "few file descriptors are left");
  if (error == ENFILE) {
    return begin +
           ": all processes of the host together have too many files open; raise "
           "fs.file-max (sysctl)";
  }
  const DescriptorUse use = ReadDescriptorUse();
  return begin + ": " + std::to_string(use.limit) + " file descriptors are allowed and " +
         std::to_string(use.used) +
         " are in use; connections get fewer flows or fail. Raise the limit: ulimit -n 65536, "
         "LimitNOFILE= of a systemd service, --ulimit nofile= of a container";
}

void ReportShortage(const Log& log, const char* what, int error) noexcept {
  try {
    const bool first = !warned.exchange(true);
    const std::string text = ShortageText(what, error);
    first ? log.Warn(text) : log.Info(text);
  } catch (const std::exception&) {
    // Out of memory for the full text.
    log.Warn("out of file descriptors (ulimit -n)");
  }
}

void ForgetShortages() { warned = false; }

std::shared_ptr<SpareDescriptor> SpareDescriptor::Get() {
  // The mutex and the pointer are never destroyed: listeners may be closed during process exit.
  static std::mutex* const mutex = new std::mutex;
  static std::weak_ptr<SpareDescriptor>* const shared = new std::weak_ptr<SpareDescriptor>;
  const std::scoped_lock lock(*mutex);
  std::shared_ptr<SpareDescriptor> spare = shared->lock();
  if (spare == nullptr) {
    spare = std::make_shared<SpareDescriptor>();
    *shared = spare;
  }
  return spare;
}

bool SpareDescriptor::Release() {
  const std::scoped_lock lock(mutex_);
  if (!reserved_) return false;
  reserved_.Close();
  return true;
}

bool SpareDescriptor::Restore() {
  const std::scoped_lock lock(mutex_);
  if (!reserved_) reserved_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  return static_cast<bool>(reserved_);
}

}  // namespace nccltune::net
