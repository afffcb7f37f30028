// SPDX-License-Identifier: Apache-2.0
//
// Part of every shared object of ours. The C++ runtime inside it takes 72 KiB at load, to be able
// to throw when memory is out, and would leave them behind at each dlclose.

// NOLINTBEGIN(bugprone-reserved-identifier,misc-use-internal-linkage): libstdc++'s own names
namespace __gnu_cxx {
__attribute__((weak)) void __freeres();
}
// NOLINTEND(bugprone-reserved-identifier,misc-use-internal-linkage)

namespace {

__attribute__((destructor)) void GiveBackReserve() {
  if (&__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}

}  // namespace
