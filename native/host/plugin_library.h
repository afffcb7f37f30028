// SPDX-License-Identifier: Apache-2.0
// The shared object of a tuner plugin, opened with the same flags as NCCL uses.
#ifndef NCCLTUNE_HOST_PLUGIN_LIBRARY_H_
#define NCCLTUNE_HOST_PLUGIN_LIBRARY_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/shared_library.h"

namespace nccltune::host {

class PluginLibrary {
 public:
  // Opens the plugin. Returns null, with the loader's message in *error, if the file cannot be
  // opened.
  static std::unique_ptr<PluginLibrary> Open(const std::string& path, std::string* error);

  // Returns the struct that the plugin exports for that interface version, or null.
  const void* Tuner(int version) const;

  // Returns the exported interface versions, newest first. The list may contain v1, which no NCCL
  // since 2.21 looks up.
  std::vector<int> Interfaces() const;

 private:
  explicit PluginLibrary(SharedLibrary library) : library_(std::move(library)) {}

  SharedLibrary library_;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_PLUGIN_LIBRARY_H_
