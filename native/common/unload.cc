// SPDX-License-Identifier: Apache-2.0
// Frees memory of the C++ runtime when a shared object of ours is unloaded. Each shared object
// contains its own C++ runtime. The runtime allocates 72 KiB at load, so that it can throw when
// memory is exhausted; without this file, each dlclose would leak that memory. The declaration is
// weak and hidden: if our runtime lacks __freeres, the function of another runtime in the process
// must not be called.

// NOLINTBEGIN(bugprone-reserved-identifier,misc-use-internal-linkage): libstdc++'s own names
namespace __gnu_cxx {
__attribute__((weak, visibility("hidden"))) void __freeres();
}
// NOLINTEND(bugprone-reserved-identifier,misc-use-internal-linkage)

namespace {

__attribute__((destructor)) void GiveBackReserve() {
  if (&__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}

}  // namespace
