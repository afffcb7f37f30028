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

// Hashes of the warnings that were logged. When full, the oldest is dropped.
struct Said {
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
constinit Said said;

}  // namespace

void Warnings::Say(std::string_view text) const {
  if (!log_.silent() && said.Add(ContentHash(text))) log_.Warn(text);
}

void ForgetWarnings() {
  const std::lock_guard<std::mutex> lock(said.mutex);
  said.hashes.fill(0);
  said.next = 0;
}

}  // namespace nccltune::tuner
