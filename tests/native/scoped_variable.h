// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_TESTS_SCOPED_VARIABLE_H_
#define NCCLTUNE_TESTS_SCOPED_VARIABLE_H_

#include "standard.h"

namespace nccltune {

// Sets a variable for the lifetime of the object; null removes it.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) before_ = before;
    Set(value);
  }
  ~ScopedVariable() { Set(before_ ? before_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void Set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_.c_str());
    } else {
      setenv(name_.c_str(), value, 1);
    }
  }

  const std::string name_;
  std::optional<std::string> before_;
};

// Sets any number of variables for the lifetime of the object.
class ScopedVariables {
 public:
  // The front is destroyed first, so that a variable that was set twice gets its first value back.
  void Set(const std::string& name, const std::string& value) {
    variables_.emplace_front(name, value.c_str());
  }

 private:
  std::forward_list<ScopedVariable> variables_;
};

}  // namespace nccltune

#endif  // NCCLTUNE_TESTS_SCOPED_VARIABLE_H_
