// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/log.h"

#include <strings.h>
#include <unistd.h>

#include <mutex>
#include <set>

#include "sendrecv/nccl_settings.h"

namespace nccltune::sendrecv {
namespace {

// Writes the line with one system call, so that lines of several ranks do not mix.
void Write(const char* level, const std::string& text) {
  char host[64] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string line = std::string(host) + ":" + std::to_string(getpid()) +
                           " nccltune sendrecv " + level + " " + text + "\n";
  // A failure of this write cannot be reported anywhere.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

bool InfoIsWanted() {
  const std::string level = NcclSetting("NCCL_DEBUG").value_or("");
  return strcasecmp(level.c_str(), "INFO") == 0 || strcasecmp(level.c_str(), "TRACE") == 0;
}

}  // namespace

void Warn(const std::string& text) {
  // Never destroyed: other threads may log while the process ends.
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& logged = *new std::set<std::string>;
  {
    const std::scoped_lock lock(mutex);
    if (!logged.insert(text).second) return;
  }
  Write("WARN", text);
}

void Info(const std::string& text) {
  static const bool wanted = InfoIsWanted();
  if (wanted) Write("INFO", text);
}

}  // namespace nccltune::sendrecv
