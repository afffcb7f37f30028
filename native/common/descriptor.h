// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace nccltune {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd`. A negative `fd` means that there is no descriptor.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  void Close() {
    if (fd_ >= 0) close(Release());
  }
  // Returns the descriptor and gives up its ownership: the caller must close the descriptor.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  // Makes the kernel close the descriptor when the process executes another program.
  void CloseOnExec() const {
    if (fd_ >= 0) fcntl(fd_, F_SETFD, FD_CLOEXEC);
  }

 private:
  int fd_ = -1;
};

}  // namespace nccltune
