// SPDX-License-Identifier: Apache-2.0
#include "bench/line_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace nccltune::bench {
namespace {

// A pipe that poll reports as writable accepts this many bytes without blocking (PIPE_BUF).
constexpr size_t kAtOnce = 4096;

}  // namespace

void LineOutput::Write(std::string_view line) {
  if (!broken_.empty()) return;
  pending_ += line;
  pending_ += '\n';
  Flush();
}

void LineOutput::Flush() {
  while (broken_.empty() && waiting() > 0) {
    pollfd ready = {descriptor_, POLLOUT, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const ssize_t got =
        write(descriptor_, pending_.data() + written_, std::min(waiting(), kAtOnce));
    if (got >= 0) {
      written_ += static_cast<size_t>(got);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      Break(std::strerror(errno));
    }
  }
  if (waiting() > 0 && written_ < pending_.size() / 2) return;
  pending_.erase(0, written_);
  written_ = 0;
}

void LineOutput::Break(std::string why) {
  if (broken_.empty()) broken_ = std::move(why);
  pending_.clear();
  written_ = 0;
}

}  // namespace nccltune::bench
