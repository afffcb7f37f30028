// SPDX-License-Identifier: Apache-2.0
// Finds the real NCCL that this library interposes.
#pragma once

#include <cstdint>
#include <string>

#include "common/shared_library.h"

namespace nccltune::sendrecv {

// The address range of a library's code. An empty range contains no address.
struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

// The real NCCL. The constructor searches for NCCL in this order: NCCLTUNE_SENDRECV_NCCL, the
// loader's next library (RTLD_NEXT), a loaded library with NCCL's name, libnccl.so.2 on the
// loader's search path. If NCCLTUNE_SENDRECV_NCCL is set, no other place is searched. This library
// and copies of it are skipped. The NCCL that is found stays loaded.
class RealNccl {
 public:
  RealNccl();
  ~RealNccl() { library_.Keep(); }
  RealNccl(const RealNccl&) = delete;
  RealNccl& operator=(const RealNccl&) = delete;

  // Returns why no NCCL was found, or an empty text if one was found.
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  // Returns NCCL's function `symbol`, or null if NCCL lacks the function.
  void* Find(const char* symbol) const;
  // Returns the address range of NCCL if it is a library named libnccl.so*. Otherwise the range is
  // empty: NCCL may be part of a program, whose own calls come from the same range and must be
  // intercepted.
  const CodeRange& code() const { return code_; }

 private:
  void Search(const std::string& named);
  // Accepts the library if it is an NCCL and not a copy of this library. Returns whether it was
  // accepted.
  bool Take(SharedLibrary& library);
  void Accept(const void* function);

  SharedLibrary library_;
  // Look functions up by RTLD_NEXT first, so that interposers loaded behind this one are called.
  bool searches_next_ = false;
  CodeRange code_;
  std::string path_;
  std::string error_;
};

}  // namespace nccltune::sendrecv
