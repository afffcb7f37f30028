// SPDX-License-Identifier: Apache-2.0
#include "common/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "common/descriptor.h"
#include "common/text.h"

namespace nccltune {
namespace {

// A file that is read while it is written is read again this often, with a pause of a millisecond.
constexpr int kReads = 100;

// Reads `size` bytes. Returns an errno value, or nothing if the file has another size.
std::optional<int> ReadAll(int fd, size_t size, std::string* content) {
  content->resize(size + 1);  // one more, to see whether the file has grown
  size_t done = 0;
  while (done <= size) {
    const ssize_t got =
        pread(fd, content->data() + done, size + 1 - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content->resize(size);
  return done == size ? std::optional(0) : std::nullopt;
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

bool ReadFile(const std::string& path, size_t largest, std::string* content, std::string* error) {
  // O_NONBLOCK: without this flag, opening a pipe that has no writer would block NCCL's
  // initialisation.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts{};
  if (!file || fstat(file.fd(), &facts) != 0) {
    *error = ErrorWords(errno);
    return false;
  }
  if (S_ISDIR(facts.st_mode)) {
    *error = "is a directory";
    return false;
  }
  if (!S_ISREG(facts.st_mode)) {
    *error = "is not a regular file";
    return false;
  }
  for (int i = 0; i < kReads; ++i) {
    const auto size = static_cast<size_t>(facts.st_size);
    if (size > largest) {
      *error = "has " + std::to_string(size) + " bytes, more than " + std::to_string(largest);
      return false;
    }
    const std::optional<int> failed = ReadAll(file.fd(), size, content);
    const struct stat before = facts;
    if (failed.value_or(0) != 0 || fstat(file.fd(), &facts) != 0) {
      *error = ErrorWords(failed.value_or(0) != 0 ? *failed : errno);
      return false;
    }
    if (failed && IsSame(before, facts)) return true;
    usleep(1000);
  }
  *error = "changes while it is read, or its size is not known";
  return false;
}

void RemoveOldFiles(const std::string& folder, std::string_view begin, std::string_view end,
                    time_t seconds, const std::function<bool(int file)>& in_use) {
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(begin) || !name.ends_with(end)) continue;
    const std::string path = folder + '/' + entry->d_name;
    const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat found{};
    if (file && fstat(file.fd(), &found) == 0 && S_ISREG(found.st_mode) &&
        found.st_uid == geteuid() && found.st_mtime + seconds < std::time(nullptr) &&
        !in_use(file.fd())) {
      unlink(path.c_str());
    }
  }
  closedir(opened);
}

}  // namespace nccltune
