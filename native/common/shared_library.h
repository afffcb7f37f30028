// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace nccltune {

// A reference to a shared library in this process. The library stays loaded at least as long as
// this object lives.
class SharedLibrary {
 public:
  // Creates an object that refers to no library.
  SharedLibrary() = default;

  // Loads a library by its path, or by a name that the loader searches. The flags are RTLD_NOW and
  // RTLD_LOCAL, which NCCL also uses for plugins. With `lazily`, RTLD_LAZY replaces RTLD_NOW: a
  // missing function is an error only when it is called. On failure, returns an object without a
  // library and sets *error to the loader's message.
  static SharedLibrary Open(const std::string& name, std::string* error, bool lazily = false);

  // Returns the library with this name or path ("libcuda.so.1") if it is loaded already, else an
  // object without a library.
  static SharedLibrary Loaded(const char* name);
  // Returns the loaded library whose code or data contains `address`. Returns an object without a
  // library if `address` is null, belongs to the program itself or is in no loaded file.
  static SharedLibrary Holding(const void* address);
  // Returns an object that finds symbols of the program and of all globally loaded libraries.
  static SharedLibrary Global();

  ~SharedLibrary();
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }

  // Returns the address of the function or variable named `symbol`; null if there is none.
  template <typename Symbol>
  Symbol* Find(const char* symbol) const {
    return reinterpret_cast<Symbol*>(FindAddress(symbol));
  }
  void* FindAddress(const char* symbol) const;

  // Returns the path of the library's file with links resolved; empty if the path is unknown.
  std::string Path() const;

  // Keeps the library loaded forever. Afterwards this object refers to no library.
  void Keep() { handle_ = nullptr; }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_ = nullptr;
};

}  // namespace nccltune
