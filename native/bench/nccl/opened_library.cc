// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/opened_library.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>

namespace nccltune::bench {

std::unique_ptr<OpenedLibrary> OpenedLibrary::Open(const std::string& name, std::string* error) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    *error = reason == nullptr ? "the loader gives no reason" : reason;
    return nullptr;
  }
  return std::unique_ptr<OpenedLibrary>(new OpenedLibrary(handle));
}

std::string OpenedLibrary::Path() const {
  link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) return "";
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(map->l_name, nullptr),
                                                             &std::free);
  return resolved == nullptr ? std::string(map->l_name) : std::string(resolved.get());
}

void* OpenedLibrary::Address(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace nccltune::bench
