// SPDX-License-Identifier: Apache-2.0
#include "host/line_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace nccltune::host {
namespace {

// Duplicates the descriptor to a number above the three standard descriptors. Child processes of
// the plugin do not inherit the duplicate.
int PrivateCopy(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

}  // namespace

LineChannel::LineChannel() : in_(PrivateCopy(STDIN_FILENO)), out_(PrivateCopy(STDOUT_FILENO)) {
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const bool moved =
      nothing && dup2(nothing.fd(), STDIN_FILENO) >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
  if (!moved) out_.Close();
}

LineBuffer::Result LineChannel::ReadLine(std::string* line) {
  for (;;) {
    const LineBuffer::Result result = buffer_.Next(line);
    if (result != LineBuffer::Result::kMore) return result;
    char bytes[4096];
    const ssize_t got = read(in_.fd(), bytes, sizeof bytes);
    if (got > 0) {
      buffer_.Add({bytes, static_cast<size_t>(got)});
    } else if (got == 0 || errno != EINTR) {
      buffer_.End();
    }
  }
}

bool LineChannel::WriteLine(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t got = write(out_.fd(), bytes.data() + written, bytes.size() - written);
    if (got >= 0) {
      written += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

LineBuffer::Result LineBuffer::Next(std::string* line) {
  const size_t end = pending_.find('\n', searched_);
  if (end != std::string::npos) {
    line->assign(pending_, 0, end);
    pending_.erase(0, end + 1);
    searched_ = 0;
    return std::exchange(too_long_, false) || end > kLongestLine ? Result::kTooLong : Result::kLine;
  }
  searched_ = pending_.size();
  if (searched_ > kLongestLine) {
    too_long_ = true;
    pending_.clear();
    searched_ = 0;
  }
  if (!ended_) return Result::kMore;
  line->assign(std::exchange(pending_, {}));
  searched_ = 0;
  if (std::exchange(too_long_, false)) return Result::kTooLong;
  return line->empty() ? Result::kEnd : Result::kLine;
}

}  // namespace nccltune::host
