// SPDX-License-Identifier: Apache-2.0
//
// Where the NCCL is that we stand before.
#ifndef NCCLTUNE_SENDRECV_REAL_NCCL_H_
#define NCCLTUNE_SENDRECV_REAL_NCCL_H_

#include <cstdint>
#include <string>

namespace nccltune::sendrecv {

// Where a library's code lies. Empty: it holds nothing.
struct CodeRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool Holds(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - begin < end - begin;
  }
};

// The first of: what NCCLTUNE_SENDRECV_NCCL names; what the loader has behind this library; a
// library of NCCL's name in this process; libnccl.so.2 where the loader would look. Never this
// library, nor a copy of it. Stays in the process.
class RealNccl {
 public:
  RealNccl();

  // Why there is none; empty: there is one.
  const std::string& error() const { return error_; }
  const std::string& path() const { return path_; }
  // Null: it has none of this name.
  void* Find(const char* symbol) const;
  // Of what is an NCCL by name. Empty for one that is part of a program, whose own calls come from
  // there as well.
  const CodeRange& code() const { return code_; }

 private:
  void Look(const std::string& named);
  void Accept(void* handle, void* function);

  void* handle_ = nullptr;
  bool behind_ = false;  // others that stand before NCCL are behind us in the loader's order
  CodeRange code_;
  std::string path_;
  std::string error_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_REAL_NCCL_H_
