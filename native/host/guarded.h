// SPDX-License-Identifier: Apache-2.0
// Memory handed to a plugin, with guard bytes on both sides that show a write outside.
#ifndef NCCLTUNE_HOST_GUARDED_H_
#define NCCLTUNE_HOST_GUARDED_H_

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
  // Zeroed; the first byte is aligned for every type. `name` says in findings what was missed.
  GuardedBytes(const char* name, size_t size);

  void* data() { return memory_.get() + kGuardBytes; }
  const void* data() const { return memory_.get() + kGuardBytes; }
  size_t size() const { return size_; }

  // What was written outside since the last call, in words; mends the guards.
  std::optional<std::string> TakeDamage();

 private:
  // More than a table of pointers in place of one of floats, or a struct of a newer version, runs
  // over by.
  static constexpr size_t kGuardBytes = 4096;

  void FillGuards();

  const char* name_;
  size_t size_;
  std::unique_ptr<uint8_t[]> memory_;
};

// One object of a plain type in guarded memory.
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

#endif  // NCCLTUNE_HOST_GUARDED_H_
