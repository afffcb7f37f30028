// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_OPENED_LIBRARY_H_
#define NCCLTUNE_BENCH_NCCL_OPENED_LIBRARY_H_

#include <memory>
#include <string>

namespace nccltune::bench {

// A shared library that this process opened and never closes: CUDA and NCCL leave threads behind
// that run its code.
class OpenedLibrary {
 public:
  // By path, or by a name for the loader to search. Null and *error, in the loader's words.
  static std::unique_ptr<OpenedLibrary> Open(const std::string& name, std::string* error);

  // False if there is none of that name; `missing` then gets the first such name.
  template <typename Function>
  bool Find(const char* symbol, Function** function, std::string* missing) const {
    *function = reinterpret_cast<Function*>(Address(symbol));
    if (*function == nullptr && missing->empty()) *missing = symbol;
    return *function != nullptr;
  }

  // The file that the loader took.
  std::string Path() const;

 private:
  explicit OpenedLibrary(void* handle) : handle_(handle) {}
  void* Address(const char* symbol) const;

  void* handle_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_OPENED_LIBRARY_H_
