// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/cuda_options.h"
#include "standard.h"

namespace nccltune::soft {

long long NumberOf(const char* variable, long long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

CudaOptions CudaOptions::FromEnvironment() {
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

Refusals::Refusals(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return;
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    const size_t colon = entry.find(':');
    left_[entry.substr(0, colon)] =
        colon == std::string::npos ? 1 : std::atoll(entry.c_str() + colon + 1);
  }
}

bool Refusals::Refuses(const char* function) {
  if (left_.empty()) return false;
  std::string name = function;
  const std::scoped_lock lock(mutex_);
  auto found = left_.find(name);
  if (found == left_.end() && name.ends_with("_v2")) {
    found = left_.find(name.substr(0, name.size() - 3));
  }
  return found != left_.end() && --found->second == 0;
}

uint64_t Chance(uint64_t end) {
  static std::atomic<uint64_t> threads{0};
  thread_local std::mt19937_64 random(static_cast<uint64_t>(NumberOf("SOFT_CUDA_SEED", 1)) * 1000 +
                                      threads.fetch_add(1));
  return random() % end;
}

void MaybeSleep(unsigned longest_us) {
  if (longest_us == 0 || Chance(4) != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(Chance(longest_us) + 1));
}

void Patience::Sleep() {
  if (++turns_ <= 8) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(1000U, 10 * (turns_ - 8))));
}

}  // namespace nccltune::soft
