// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/real_nccl.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "common/text.h"
#include "sendrecv/search_path.h"
#include "sendrecv/symbols.h"

namespace nccltune::sendrecv {
namespace {

// Every NCCL has it.
constexpr const char* kAnyNccl = "ncclGetVersion";
constexpr const char* kVariable = "NCCLTUNE_SENDRECV_NCCL";

// Only what is somebody else's.
void* Others(void* function) { return IsTrampoline(function) ? nullptr : function; }

std::string FileOf(const void* address) {
  Dl_info where{};
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return {};
  return where.dli_fname;
}

bool IsNamedAsNccl(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("libnccl.so");
}

struct Span {
  uintptr_t address;
  uintptr_t begin;
  uintptr_t end;
};

// The object that holds the address, from its first page to its last.
int FindSpan(dl_phdr_info* object, size_t /*size*/, void* data) {
  Span& span = *static_cast<Span*>(data);
  Span all = {span.address, UINTPTR_MAX, 0};
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    all.begin = std::min<uintptr_t>(all.begin, object->dlpi_addr + header.p_vaddr);
    all.end = std::max<uintptr_t>(all.end, object->dlpi_addr + header.p_vaddr + header.p_memsz);
  }
  if (span.address < all.begin || span.address >= all.end) return 0;
  span = all;
  return 1;
}

}  // namespace

RealNccl::RealNccl() { Look(ReadPath(SettingId::kSendrecvNccl)); }

void RealNccl::Look(const std::string& named) {
  if (!named.empty()) {
    void* const handle = dlopen(named.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const why = dlerror();
      error_ = std::string(kVariable) + ": " + (why == nullptr ? Quoted(named) : why);
      return;
    }
    void* const function = dlsym(handle, kAnyNccl);
    if (Others(function) != nullptr) return Accept(handle, function);
    error_ = std::string(kVariable) + "=" + Quoted(named) +
             (function == nullptr ? " is no NCCL" : " is nccltune's library, not an NCCL");
    return;
  }

  behind_ = true;
  if (void* const function = Others(dlsym(RTLD_NEXT, kAnyNccl)); function != nullptr) {
    return Accept(nullptr, function);
  }
  // A Python module brings its NCCL along, where nobody sees it who was there before.
  for (const std::string& path : LoadedPaths()) {
    if (!IsNamedAsNccl(path)) continue;
    void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const function = Others(dlsym(handle, kAnyNccl));
    if (function != nullptr) return Accept(handle, function);
    dlclose(handle);
  }
  const std::string ours = FileOf(reinterpret_cast<const void*>(&IsNamedAsNccl));
  const SearchPath searched = FindOnSearchPath("libnccl.so.2", ours);
  for (const std::string& path : searched.files) {
    void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    void* const function = Others(dlsym(handle, kAnyNccl));
    if (function != nullptr) return Accept(handle, function);
    dlclose(handle);
  }
  error_ = "no NCCL was found: none is behind " + ours +
           " or loaded, and no other libnccl.so.2 in " + searched.folders + "; " + kVariable +
           " names the one to use";
}

void RealNccl::Accept(void* handle, void* function) {
  handle_ = handle;
  path_ = FileOf(function);
  Span span = {reinterpret_cast<uintptr_t>(function), 0, 0};
  if (IsNamedAsNccl(path_) && dl_iterate_phdr(&FindSpan, &span) != 0) {
    code_ = {.begin = span.begin, .end = span.end};
  }
}

void* RealNccl::Find(const char* symbol) const {
  void* found = behind_ ? Others(dlsym(RTLD_NEXT, symbol)) : nullptr;
  if (found == nullptr && handle_ != nullptr) found = Others(dlsym(handle_, symbol));
  return found;
}

}  // namespace nccltune::sendrecv
