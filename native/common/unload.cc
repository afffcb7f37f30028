// SPDX-License-Identifier: Apache-2.0
//
// Linked into each of our shared objects. The C++ runtime inside allocates 72 KiB at load, so that
// it can throw when memory is exhausted, and would leak them at each dlclose. The declaration is
// weak and hidden: if our runtime lacks the function, the process's function must not be called.

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
