// SPDX-License-Identifier: Apache-2.0
#include "common/loaded_library.h"

#include <dlfcn.h>

#include <utility>

namespace nccltune {

LoadedLibrary LoadedLibrary::Named(const char* name) {
  return LoadedLibrary(dlopen(name, RTLD_LAZY | RTLD_NOLOAD));
}

LoadedLibrary LoadedLibrary::Holding(const void* address) {
  Dl_info where{};
  if (address == nullptr || dladdr(address, &where) == 0 || where.dli_fname == nullptr) {
    return LoadedLibrary(nullptr);
  }
  return Named(where.dli_fname);
}

LoadedLibrary LoadedLibrary::Global() { return LoadedLibrary(dlopen(nullptr, RTLD_LAZY)); }

LoadedLibrary::~LoadedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

LoadedLibrary::LoadedLibrary(LoadedLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

void* LoadedLibrary::FindAddress(const char* symbol) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

}  // namespace nccltune
