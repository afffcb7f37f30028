// SPDX-License-Identifier: Apache-2.0
// The options of the CUDA stand-in, from the environment, and random delays.
#pragma once

#include "standard.h"

namespace nccltune::soft {

// Returns an integer from the environment.
inline long long NumberOf(const char* variable, long long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

struct CudaOptions {
  int gpus = 4;                 // SOFT_CUDA_GPUS
  std::set<std::string> lacks;  // SOFT_CUDA_LACKS: see README.md
  uint64_t seed = 1;            // SOFT_CUDA_SEED
  unsigned delay_us = 20;       // SOFT_CUDA_DELAY_US: the longest delay of an operation or a piece
  bool blocking = false;        // SOFT_CUDA_BLOCKING
  // CUDA_DEVICE_MAX_CONNECTIONS if SOFT_CUDA_QUEUES=1; 0: each stream has its own queue.
  size_t queues = 0;

  static CudaOptions FromEnvironment() {
    CudaOptions options;
    options.gpus = static_cast<int>(NumberOf("SOFT_CUDA_GPUS", options.gpus));
    if (const char* const text = std::getenv("SOFT_CUDA_LACKS")) {
      std::istringstream list(text);
      for (std::string word; std::getline(list, word, ',');) options.lacks.insert(word);
    }
    options.seed = static_cast<uint64_t>(NumberOf("SOFT_CUDA_SEED", 1));
    options.delay_us = static_cast<unsigned>(NumberOf("SOFT_CUDA_DELAY_US", options.delay_us));
    options.blocking = NumberOf("SOFT_CUDA_BLOCKING", 0) == 1;
    if (NumberOf("SOFT_CUDA_QUEUES", 0) == 1) {
      options.queues = static_cast<size_t>(NumberOf("CUDA_DEVICE_MAX_CONNECTIONS", 8));
    }
    return options;
  }
  bool Lacks(const char* feature) const { return lacks.contains(feature); }
};

// Opens a file that another process has open, if it still is the one with this inode. -1: it is
// not.
inline int OpenFileOf(int process, int fd, uint64_t inode) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat about = {};
  if (opened >= 0 && (fstat(opened, &about) != 0 || about.st_ino != inode)) {
    close(opened);
    return -1;
  }
  return opened;
}

// A list 'function:n,function:n'. The n-th call of each function is refused once.
class Refusals {
 public:
  explicit Refusals(const char* variable) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return;
    std::istringstream list(text);
    for (std::string entry; std::getline(list, entry, ',');) {
      const size_t colon = entry.find(':');
      left_[entry.substr(0, colon)] =
          colon == std::string::npos ? 1 : std::atoll(entry.c_str() + colon + 1);
    }
  }
  // Counts a call and returns whether to refuse it. The variable may omit the suffix _v2.
  bool Refuses(const char* function) {
    if (left_.empty()) return false;
    std::string name = function;
    const std::scoped_lock lock(mutex_);
    auto found = left_.find(name);
    if (found == left_.end() && name.ends_with("_v2")) {
      found = left_.find(name.substr(0, name.size() - 3));
    }
    return found != left_.end() && --found->second == 0;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, long long> left_;  // how many calls are left before the refused one
};

// Returns a random number below `end`, from the calling thread's generator. `end` must not be 0.
inline uint64_t Chance(uint64_t end) {
  static std::atomic<uint64_t> threads{0};
  thread_local std::mt19937_64 random(static_cast<uint64_t>(NumberOf("SOFT_CUDA_SEED", 1)) * 1000 +
                                      threads.fetch_add(1));
  return random() % end;
}

// Sleeps sometimes, for at most `longest_us`.
inline void MaybeSleep(unsigned longest_us) {
  if (longest_us == 0 || Chance(4) != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(Chance(longest_us) + 1));
}

// Sleeps in polling loops. The time grows up to a millisecond.
class Patience {
 public:
  void Sleep() {
    if (++turns_ <= 8) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(1000U, 10 * (turns_ - 8))));
  }

 private:
  unsigned turns_ = 0;
};

}  // namespace nccltune::soft
