// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_DESCRIPTOR_H_
#define NCCLTUNE_BENCH_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace nccltune::bench {

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

  void Close() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_DESCRIPTOR_H_
