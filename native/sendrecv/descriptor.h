// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor of ours.
#ifndef NCCLTUNE_SENDRECV_DESCRIPTOR_H_
#define NCCLTUNE_SENDRECV_DESCRIPTOR_H_

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace nccltune::sendrecv {

class Descriptor {
 public:
  Descriptor() = default;
  // Negative: none.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  explicit operator bool() const { return number_ >= 0; }
  int number() const { return number_; }

  // Programs that this process starts do not get it.
  void CloseOnExec() const {
    if (number_ >= 0) fcntl(number_, F_SETFD, FD_CLOEXEC);
  }

 private:
  int number_ = -1;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_DESCRIPTOR_H_
