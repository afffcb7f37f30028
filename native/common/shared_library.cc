// SPDX-License-Identifier: Apache-2.0
#include "common/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <memory>
#include <utility>

namespace nccltune {

SharedLibrary SharedLibrary::Open(const std::string& name, std::string* error, bool lazily) {
  SharedLibrary library(dlopen(name.c_str(), (lazily ? RTLD_LAZY : RTLD_NOW) | RTLD_LOCAL));
  if (!library) {
    const char* const reason = dlerror();
    *error = reason == nullptr ? "the loader gives no reason" : reason;
  }
  return library;
}

SharedLibrary SharedLibrary::Loaded(const char* name) {
  return SharedLibrary(dlopen(name, RTLD_LAZY | RTLD_NOLOAD));
}

SharedLibrary SharedLibrary::Holding(const void* address) {
  Dl_info where{};
  if (address == nullptr || dladdr(address, &where) == 0 || where.dli_fname == nullptr) return {};
  return Loaded(where.dli_fname);
}

SharedLibrary SharedLibrary::Global() { return SharedLibrary(dlopen(nullptr, RTLD_LAZY)); }

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

SharedLibrary::SharedLibrary(SharedLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)) {}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

void* SharedLibrary::FindAddress(const char* symbol) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
}

std::string SharedLibrary::Path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) {
    return "";
  }
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(map->l_name, nullptr),
                                                             &std::free);
  return resolved == nullptr ? std::string(map->l_name) : std::string(resolved.get());
}

}  // namespace nccltune
