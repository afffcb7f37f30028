// SPDX-License-Identifier: Apache-2.0
// A tuner plugin's shared object, opened as NCCL opens it.
#ifndef NCCLTUNE_HOST_PLUGIN_LIBRARY_H_
#define NCCLTUNE_HOST_PLUGIN_LIBRARY_H_

#include <memory>
#include <string>
#include <vector>

namespace nccltune::host {

class PluginLibrary {
 public:
  // Null and *error (the loader's own words) if it cannot be opened.
  static std::unique_ptr<PluginLibrary> Open(const std::string& path, std::string* error);
  ~PluginLibrary();
  PluginLibrary(const PluginLibrary&) = delete;
  PluginLibrary& operator=(const PluginLibrary&) = delete;

  // The struct exported for that interface version, or null.
  const void* Tuner(int version) const;

  // Interface versions exported, newest first. Includes v1, which no NCCL since 2.21 looks for.
  std::vector<int> Interfaces() const;

 private:
  explicit PluginLibrary(void* handle) : handle_(handle) {}

  void* handle_;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_PLUGIN_LIBRARY_H_
