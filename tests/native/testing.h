// SPDX-License-Identifier: Apache-2.0
// What every test includes, and small helpers; it is precompiled once for all test programs.
#pragma once

#include <gtest/gtest.h>

#include "standard.h"

namespace nccltune {

inline bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Returns the descriptors of this process's memfds of that name, found as another program finds
// them.
inline std::vector<int> OpenMemory(const std::string& name) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (file == "/memfd:" + name + " (deleted)") {
      found.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  std::ranges::sort(found);
  return found;
}

// Runs `body` in a process of its own. Returns its exit status, or minus the signal that ended it.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

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
