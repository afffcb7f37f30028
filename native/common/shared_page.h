// SPDX-License-Identifier: Apache-2.0
// Memory with counters that other programs read while the job runs. It is a memfd, which readers
// find by its name in /proc/PID/fd. Readers do not slow the writers down.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/descriptor.h"

namespace nccltune {

using Word = std::atomic<uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

// A text that other processes can read at any time. It ends with a zero byte; longer text is cut.
template <size_t kBytes>
class SharedText {
 public:
  void Set(std::string_view text) {
    std::array<char, kBytes> bytes = {};
    text.copy(bytes.data(), kBytes - 1);
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + 8 * i, 8);
      words_[i].store(word);
    }
  }

  std::string Get() const {
    std::array<char, kBytes + 1> bytes = {};
    for (size_t i = 0; i < words_.size(); ++i) {
      const uint64_t word = words_[i].load();
      std::memcpy(bytes.data() + 8 * i, &word, 8);
    }
    return bytes.data();
  }

 private:
  static_assert(kBytes % 8 == 0);
  std::array<Word, kBytes / 8> words_ = {};
};

class SharedPage {
 public:
  // Makes `bytes` zero bytes, aligned to 64, that readers find under `name`. If the kernel gives no
  // such memory, it is private. Throws only std::bad_alloc.
  SharedPage(const char* name, size_t bytes);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  size_t bytes() const { return bytes_; }

  // Returns why other processes cannot read the page; empty if they can.
  const std::string& hidden() const { return hidden_; }

 private:
  void* Shared(const char* name);

  Descriptor shared_;  // empty if the memory is private
  size_t bytes_;
  void* memory_ = nullptr;
  std::string hidden_;
};

}  // namespace nccltune
