// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/text.h"

namespace nccltune::net {
namespace {

constexpr size_t kLargest = 64U << 10U;

}  // namespace

std::optional<std::string> ReadKernelFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return std::nullopt;
  std::string content(kLargest, '\0');
  size_t done = 0;
  bool failed = false;
  while (done < kLargest) {
    const ssize_t got = read(fd, content.data() + done, kLargest - done);
    if (got < 0 && errno == EINTR) continue;
    failed = got < 0;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  close(fd);
  // The speed of an interface without a link is an error of the read, not of the open.
  if (failed) return std::nullopt;
  content.resize(done);
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

std::optional<uint64_t> ReadKernelNumber(const std::string& path) {
  const std::optional<std::string> text = ReadKernelFile(path);
  return text ? ParseUnsigned(Trimmed(*text)) : std::nullopt;
}

}  // namespace nccltune::net
