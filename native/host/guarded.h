// SPDX-License-Identifier: Apache-2.0
// Memory for a plugin, with guard bytes on both sides that reveal writes outside of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

namespace nccltune::host {

class GuardedBytes {
 public:
  // The memory is zeroed and aligned for every type. `name` appears in the texts of TakeDamage.
  GuardedBytes(const char* name, size_t size);

  void* data() { return memory_.get() + kGuardBytes; }
  const void* data() const { return memory_.get() + kGuardBytes; }
  size_t size() const { return size_; }

  // Describes the writes outside the memory since the last call, and restores the guard bytes.
  // Returns nullopt if there were none.
  std::optional<std::string> TakeDamage();

 private:
  // Large enough to detect likely mistakes. A plugin may write a table of pointers instead of
  // floats, or a struct of a newer interface version.
  static constexpr size_t kGuardBytes = 4096;

  void FillGuards();

  const char* name_;
  size_t size_;
  std::unique_ptr<uint8_t[]> memory_;
};

// An object of a trivially copyable type in guarded memory.
template <typename T>
class Guarded {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Guarded(const char* name, const T& value) : bytes_(name, sizeof(T)) { set(value); }

  T* data() { return static_cast<T*>(bytes_.data()); }
  T get() const {
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }
  void set(const T& value) { std::memcpy(bytes_.data(), &value, sizeof value); }
  std::optional<std::string> TakeDamage() { return bytes_.TakeDamage(); }

 private:
  GuardedBytes bytes_;
};

}  // namespace nccltune::host
