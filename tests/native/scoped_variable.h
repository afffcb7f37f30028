// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_SCOPED_VARIABLE_H_
#define NCCLTUNE_TESTS_SCOPED_VARIABLE_H_

#include <cstdlib>
#include <string>

namespace nccltune {

// Sets a variable for the lifetime of the object; null removes it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    was_set_ = before != nullptr;
    if (was_set_) before_ = before;
    Set(value);
  }
  ~ScopedVariable() { Set(was_set_ ? before_.c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void Set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

  const char* name_;
  bool was_set_ = false;
  std::string before_;
};

}  // namespace nccltune

#endif  // NCCLTUNE_TESTS_SCOPED_VARIABLE_H_
