// SPDX-License-Identifier: Apache-2.0
#include "host/plugin_library.h"

#include <utility>

#include "host/tuner_interface.h"

namespace nccltune::host {

std::unique_ptr<PluginLibrary> PluginLibrary::Open(const std::string& path, std::string* error) {
  SharedLibrary library = SharedLibrary::Open(path, error);
  if (!library) return nullptr;
  return std::unique_ptr<PluginLibrary>(new PluginLibrary(std::move(library)));
}

const void* PluginLibrary::Tuner(int version) const {
  return library_.FindAddress(TunerSymbolName(version).c_str());
}

std::vector<int> PluginLibrary::Interfaces() const {
  std::vector<int> versions;
  for (int version = kNewestInterface; version >= 1; --version) {
    if (Tuner(version) != nullptr) versions.push_back(version);
  }
  return versions;
}

}  // namespace nccltune::host
