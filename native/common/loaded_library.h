// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_LOADED_LIBRARY_H_
#define NCCLTUNE_COMMON_LOADED_LIBRARY_H_

namespace nccltune {

// A library that this process has loaded already; never loads one.
class LoadedLibrary {
 public:
  // By the name or path it was loaded under ("libcuda.so.1").
  static LoadedLibrary Named(const char* name);
  // The one whose code or data holds `address`; none when that is the program itself.
  static LoadedLibrary Holding(const void* address);
  // The program with everything that it sees: symbols of all libraries loaded globally.
  static LoadedLibrary Global();

  ~LoadedLibrary();
  LoadedLibrary(LoadedLibrary&& other) noexcept;
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(LoadedLibrary&&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }

  // A function by its name, null where there is none.
  template <typename Function>
  Function* Find(const char* symbol) const {
    return reinterpret_cast<Function*>(FindAddress(symbol));
  }

 private:
  explicit LoadedLibrary(void* handle) : handle_(handle) {}
  void* FindAddress(const char* symbol) const;

  void* handle_;
};

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_LOADED_LIBRARY_H_
