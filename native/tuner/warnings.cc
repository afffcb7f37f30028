// SPDX-License-Identifier: Apache-2.0
#include "tuner/warnings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "common/content_hash.h"

namespace nccltune::tuner {
namespace {

// Hashes of the warnings that were logged. When the array is full, the oldest hash is replaced.
struct LoggedWarnings {
  std::mutex mutex;
  std::array<uint64_t, 256> hashes{};
  size_t next = 0;

  bool Add(uint64_t hash) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (std::find(hashes.begin(), hashes.end(), hash) != hashes.end()) return false;
    hashes[next++ % hashes.size()] = hash;
    return true;
  }
};
constinit LoggedWarnings logged;

}  // namespace

void Warnings::LogOnce(std::string_view text) const {
  if (!log_.silent() && logged.Add(ContentHash(text))) log_.Warn(text);
}

void ForgetWarnings() {
  const std::lock_guard<std::mutex> lock(logged.mutex);
  logged.hashes.fill(0);
  logged.next = 0;
}

}  // namespace nccltune::tuner
