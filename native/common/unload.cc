// SPDX-License-Identifier: Apache-2.0
//
// Part of every shared object of ours. The C++ runtime inside it takes 72 KiB at load, to be able to
// throw when memory is out, and would leave them behind at each dlclose.

namespace __gnu_cxx {  // NOLINT(bugprone-reserved-identifier): libstdc++'s own
__attribute__((weak)) void __freeres();  // NOLINT(bugprone-reserved-identifier)
}

namespace {

__attribute__((destructor)) void GiveBackReserve() {
  if (&__gnu_cxx::__freeres != nullptr) __gnu_cxx::__freeres();
}

}  // namespace
