// SPDX-License-Identifier: Apache-2.0
//
// Finds the real NCCL that this library interposes.
#ifndef NCCLTUNE_SENDRECV_REAL_NCCL_H_
#define NCCLTUNE_SENDRECV_REAL_NCCL_H_

#include <cstdint>
#include <string>

#include "common/shared_library.h"

namespace nccltune::sendrecv {

// The address range of a library's code. Empty: contains nothing.
struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

// The first NCCL found in this order: NCCLTUNE_SENDRECV_NCCL, the loader's next library
// (RTLD_NEXT), a loaded library with NCCL's name, libnccl.so.2 on the loader's search path. Never
// this library or a copy of it. It stays loaded.
class RealNccl {
 public:
  RealNccl();
  ~RealNccl() { library_.Keep(); }
  RealNccl(const RealNccl&) = delete;
  RealNccl& operator=(const RealNccl&) = delete;

  // Why no NCCL was found; empty: one was found.
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  // Returns null if NCCL has no function of this name.
  void* Find(const char* symbol) const;
  // The code of a library named libnccl.so*. Empty if NCCL is part of a program, because the
  // program's own calls come from the same code.
  const CodeRange& code() const { return code_; }

 private:
  void Search(const std::string& named);
  // Accepts the library if it is an NCCL and not one of ours. Returns whether it did.
  bool Take(SharedLibrary& library);
  void Accept(const void* function);

  SharedLibrary library_;
  // look functions up by RTLD_NEXT first, so that other interposers behind this one are called
  bool searches_next_ = false;
  CodeRange code_;
  std::string path_;
  std::string error_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_REAL_NCCL_H_
