// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/hooks/real_nccl.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/settings.h"
#include "common/text.h"
#include "sendrecv/hooks/search_path.h"
#include "sendrecv/hooks/symbols.h"

namespace nccltune::sendrecv {
namespace {

// A function that every NCCL has.
constexpr const char* kAnyNccl = "ncclGetVersion";
constexpr const char* kVariable = "NCCLTUNE_SENDRECV_NCCL";

// Returns null for a trampoline of this library.
void* UnlessOurs(void* function) { return IsTrampoline(function) ? nullptr : function; }

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

// Called by dl_iterate_phdr for each loaded object. Finds the object that contains the address, and
// the object's extent in memory.
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

RealNccl::RealNccl() { Search(ReadPath(SettingId::kSendrecvNccl)); }

void RealNccl::Search(const std::string& named) {
  std::string why;
  if (!named.empty()) {
    SharedLibrary library = SharedLibrary::Open(named, &why, true);
    if (!library) {
      error_ = std::string(kVariable) + ": " + why;
      return;
    }
    if (Take(library)) return;
    error_ = std::string(kVariable) + "=" + Quoted(named) +
             (library.FindAddress(kAnyNccl) == nullptr ? " is not NCCL"
                                                       : " is nccltune's library, not NCCL");
    library.Keep();
    return;
  }

  searches_next_ = true;
  if (void* const function = UnlessOurs(dlsym(RTLD_NEXT, kAnyNccl)); function != nullptr) {
    return Accept(function);
  }
  // A Python module may have loaded an NCCL in a scope that RTLD_NEXT does not search.
  for (const std::string& path : LoadedPaths()) {
    if (!IsNamedAsNccl(path)) continue;
    SharedLibrary library = SharedLibrary::Loaded(path.c_str());
    if (Take(library)) return;
  }
  const std::string ours = FileOf(reinterpret_cast<const void*>(&IsNamedAsNccl));
  const SearchPath searched = FindOnSearchPath("libnccl.so.2", ours);
  for (const std::string& path : searched.files) {
    SharedLibrary library = SharedLibrary::Open(path, &why, true);
    if (Take(library)) return;
  }
  error_ = "no NCCL was found: none is loaded besides " + ours +
           ", and no other libnccl.so.2 is in " + searched.folders + "; set " + kVariable +
           " to its path";
}

bool RealNccl::Take(SharedLibrary& library) {
  void* const function = UnlessOurs(library.FindAddress(kAnyNccl));
  if (function == nullptr) return false;
  library_ = std::move(library);
  Accept(function);
  return true;
}

void RealNccl::Accept(const void* function) {
  path_ = FileOf(function);
  Span span = {reinterpret_cast<uintptr_t>(function), 0, 0};
  if (IsNamedAsNccl(path_) && dl_iterate_phdr(&FindSpan, &span) != 0) {
    code_ = {.begin = span.begin, .end = span.end};
  }
}

void* RealNccl::Find(const char* symbol) const {
  void* found = searches_next_ ? UnlessOurs(dlsym(RTLD_NEXT, symbol)) : nullptr;
  return found != nullptr ? found : UnlessOurs(library_.FindAddress(symbol));
}

}  // namespace nccltune::sendrecv
