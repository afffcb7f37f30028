// SPDX-License-Identifier: Apache-2.0
#include "tuner/config_file.h"

#include <strings.h>
#include <unistd.h>

#include <mutex>

#include "common/file.h"
#include "common/text.h"

namespace nccltune::tuner {
namespace {

// Pauses before a file that looks torn is read again: 1 ms, doubling to this.
constexpr useconds_t kLongestPauseUs = 128'000;

constinit std::mutex mutex;
constinit std::shared_ptr<const LoadedConfig> loaded;

// Returns whether another look may show more: a writer empties a file before it writes, and may
// pause within it.
bool LooksTorn(const LoadedConfig& file) {
  return file.error.empty() &&
         (file.empty || file.config.cut_off() || file.config.open_end || file.has_other_content);
}

LoadedConfig Read(const std::string& path, const std::string& expected_hash) {
  LoadedConfig file;
  file.path = path;
  std::string content;
  if (!ReadFile(path, kLargestConfigBytes, &content, &file.error)) return file;
  file.empty = content.empty();
  file.config = ParseConfig(content);
  file.has_other_content =
      !expected_hash.empty() &&
      strcasecmp(Hex64(file.config.content_hash).c_str(), expected_hash.c_str()) != 0;
  return file;
}

}  // namespace

std::shared_ptr<const LoadedConfig> LoadConfig(const std::string& path,
                                               const std::string& expected_hash) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr && loaded->path == path) return loaded;
  LoadedConfig file = Read(path, expected_hash);
  for (useconds_t us = 1000; LooksTorn(file) && us <= kLongestPauseUs; us *= 2) {
    usleep(us);
    file = Read(path, expected_hash);
  }
  loaded = std::make_shared<const LoadedConfig>(std::move(file));
  return loaded;
}

void ForgetConfig() {
  const std::lock_guard<std::mutex> lock(mutex);
  loaded = nullptr;
}

}  // namespace nccltune::tuner
