// SPDX-License-Identifier: Apache-2.0
#include "common/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/descriptor.h"

namespace nccltune {
namespace {

std::string Reason(int error_number) {
  std::array<char, 128> buffer{};
  // strerror_r has two forms. The GNU form returns the text; the POSIX form writes the text to the
  // buffer.
  const auto text = strerror_r(error_number, buffer.data(), buffer.size());
  if constexpr (std::is_same_v<decltype(text), char* const>) {
    return text;
  } else {
    return buffer.data();
  }
}

}  // namespace

bool ReadFile(const std::string& path, size_t largest, std::string* content, std::string* error) {
  // O_NONBLOCK: without this flag, opening a pipe that has no writer would block NCCL's
  // initialisation.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts{};
  if (!file || fstat(file.fd(), &facts) != 0) {
    *error = Reason(errno);
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
  const auto size = static_cast<size_t>(facts.st_size);
  if (size > largest) {
    *error = "has " + std::to_string(size) + " bytes, more than " + std::to_string(largest);
    return false;
  }
  content->assign(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(file.fd(), content->data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      *error = Reason(errno);
      return false;
    }
    if (got == 0) break;  // the file was truncated meanwhile; return the bytes read so far
    done += static_cast<size_t>(got);
  }
  content->resize(done);
  return true;
}

}  // namespace nccltune
