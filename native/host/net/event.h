// SPDX-License-Identifier: Apache-2.0
// Wakes a thread that polls.
#ifndef NCCLTUNE_HOST_NET_EVENT_H_
#define NCCLTUNE_HOST_NET_EVENT_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace nccltune::host::net {

class Event {
 public:
  Event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Event() { close(fd_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Readable from Set to Clear.
  int fd() const { return fd_; }
  void Set() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }
  void Clear() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_EVENT_H_
