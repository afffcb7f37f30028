// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/log.h"

#include <strings.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

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

using Values = std::map<std::string, std::string, std::less<>>;

// The first line with a name counts. A name is everything before the equals sign.
void AddFile(const std::string& path, Values* values) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    values->emplace(line.substr(0, equals), line.substr(equals + 1));
  }
}

Values ReadFiles() {
  Values values;
  const char* const named = std::getenv("NCCL_CONF_FILE");
  const char* const home = std::getenv("HOME");
  if (named != nullptr && *named != '\0') {
    AddFile(named, &values);
  } else if (home != nullptr) {
    AddFile(home + std::string("/.nccl.conf"), &values);
  }
  AddFile("/etc/nccl.conf", &values);
  return values;
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

std::optional<std::string> NcclSetting(const char* name) {
  static const auto& files = *new Values(ReadFiles());
  if (const char* const value = std::getenv(name)) return value;
  const auto found = files.find(std::string_view(name));
  if (found == files.end()) return {};
  return found->second;
}

int64_t NcclNumber(const char* name) {
  return std::strtoll(NcclSetting(name).value_or("").c_str(), nullptr, 0);
}

}  // namespace nccltune::sendrecv
