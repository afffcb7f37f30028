// SPDX-License-Identifier: Apache-2.0
#include "host/plugin_library.h"

#include <dlfcn.h>

#include "host/tuner_interface.h"

namespace nccltune::host {

std::unique_ptr<PluginLibrary> PluginLibrary::Open(const std::string& path, std::string* error) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    *error = reason == nullptr ? "the loader gives no reason" : reason;
    return nullptr;
  }
  return std::unique_ptr<PluginLibrary>(new PluginLibrary(handle));
}

PluginLibrary::~PluginLibrary() { dlclose(handle_); }

const void* PluginLibrary::Tuner(int version) const {
  return dlsym(handle_, TunerSymbolName(version).c_str());
}

std::vector<int> PluginLibrary::Interfaces() const {
  std::vector<int> versions;
  for (int version = kNewestInterface; version >= 1; --version) {
    if (Tuner(version) != nullptr) versions.push_back(version);
  }
  return versions;
}

}  // namespace nccltune::host
