// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_SHARED_LIBRARY_H_
#define NCCLTUNE_COMMON_SHARED_LIBRARY_H_

#include <string>

namespace nccltune {

// A reference to a shared library in this process. The library stays loaded at least as long as the
// object lives.
class SharedLibrary {
 public:
  // Refers to no library.
  SharedLibrary() = default;

  // Loads a library by path, or by a name that the loader searches, with RTLD_NOW and RTLD_LOCAL,
  // as NCCL loads a plugin. With `lazily`, missing functions are an error only when they are
  // called. On failure it returns no library and sets *error to the loader's message.
  static SharedLibrary Open(const std::string& name, std::string* error, bool lazily = false);

  // The next two never load a library. Returns the loaded library with this name or path
  // ("libcuda.so.1"), or none:
  static SharedLibrary Loaded(const char* name);
  // Returns the library whose code or data contains `address`; none if that is the program itself.
  static SharedLibrary Holding(const void* address);
  // Returns the program and all globally loaded libraries.
  static SharedLibrary Global();

  ~SharedLibrary();
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }

  // Returns a function or an object by name, or null if there is none.
  template <typename Symbol>
  Symbol* Find(const char* symbol) const {
    return reinterpret_cast<Symbol*>(FindAddress(symbol));
  }
  void* FindAddress(const char* symbol) const;

  // Returns the path of the file that the loader opened.
  std::string Path() const;

  // Keeps the library loaded forever.
  void Keep() { handle_ = nullptr; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_ = nullptr;
};

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_SHARED_LIBRARY_H_
