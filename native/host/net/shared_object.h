// SPDX-License-Identifier: Apache-2.0
// A file opened as NCCL opens a plugin: dlopen with RTLD_NOW and RTLD_LOCAL, dlclose at the end.
#ifndef NCCLTUNE_HOST_NET_SHARED_OBJECT_H_
#define NCCLTUNE_HOST_NET_SHARED_OBJECT_H_

#include <dlfcn.h>

#include <memory>
#include <string>

namespace nccltune::host::net {

class SharedObject {
 public:
  // Null and *error, the loader's own words, if it cannot be opened.
  static std::unique_ptr<SharedObject> Open(const std::string& path, std::string* error) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return std::unique_ptr<SharedObject>(new SharedObject(handle));
    const char* const reason = dlerror();
    *error = reason == nullptr ? "the loader gives no reason" : reason;
    return nullptr;
  }
  ~SharedObject() { dlclose(handle_); }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  const void* Find(const std::string& symbol) const { return dlsym(handle_, symbol.c_str()); }

 private:
  explicit SharedObject(void* handle) : handle_(handle) {}

  void* handle_;
};

}  // namespace nccltune::host::net

#endif  // NCCLTUNE_HOST_NET_SHARED_OBJECT_H_
