// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/nccl_settings.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>

namespace nccltune::sendrecv {
namespace {

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
