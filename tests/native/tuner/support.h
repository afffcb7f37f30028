// SPDX-License-Identifier: Apache-2.0
// Shared parts of the plugin's tests: a temporary environment and files, and a uniform interface to
// the exported structs of all versions.
#ifndef NCCLTUNE_TESTS_TUNER_SUPPORT_H_
#define NCCLTUNE_TESTS_TUNER_SUPPORT_H_

#include "abi/tuner.h"
#include "host/tuner_interface.h"
#include "testing.h"
#include "tuner/decision.h"

namespace nccltune::tuner {

inline constexpr std::array<int, 6> kVersions = {2, 3, 4, 5, 6, 7};
inline constexpr Scale kScale = {4, 32};

inline std::string NameOfVersion(const ::testing::TestParamInfo<int>& test) {
  return "v" + std::to_string(test.param);
}

// A file in the test's own directory.
class ScopedFile {
 public:
  explicit ScopedFile(std::string_view content);
  ~ScopedFile();
  ScopedFile(const ScopedFile&) = delete;
  ScopedFile& operator=(const ScopedFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A library that stays loaded until the end of the scope.
class ScopedLibrary {
 public:
  explicit ScopedLibrary(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~ScopedLibrary() { dlclose(handle_); }
  ScopedLibrary(const ScopedLibrary&) = delete;
  ScopedLibrary& operator=(const ScopedLibrary&) = delete;

  template <typename Function>
  Function* Find(const char* symbol) const {
    return reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

 private:
  void* handle_;
};

// A cost table with memory after it, so that a write past its end is detected.
struct CostTable {
  static constexpr size_t kEntries = size_t{abi::kNumAlgorithms} * abi::kNumProtocols;

  // Fills in a different nonzero time for every entry.
  CostTable();

  float& at(int algorithm, int protocol) { return entries[IndexOf(algorithm, protocol)]; }
  float at(int algorithm, int protocol) const { return entries[IndexOf(algorithm, protocol)]; }
  // Returns it in the type that NCCL passes.
  float** passed() { return reinterpret_cast<float**>(entries.data()); }
  bool SameBytes(const CostTable& other) const;

  static size_t IndexOf(int algorithm, int protocol) {
    return static_cast<size_t>(algorithm) * abi::kNumProtocols + static_cast<size_t>(protocol);
  }

  std::array<float, kEntries + 3> entries;
};

// The result of one getCollInfo.
struct Answer {
  CostTable table;
  int channels = 0;
  int algorithm = -1;  // v2 only
  int protocol = -1;   // v2 only
};

// What may be unusual about a getCollInfo.
struct Unusual {
  int channels = 0;
  int algorithms = abi::kNumAlgorithms;  // rows of the table
  bool has_table = true;
  bool has_context = true;
};

// One communicator of the plugin, made through the exported struct of one version.
class TestTuner {
 public:
  TestTuner(int version, Scale scale, bool with_log = true);
  ~TestTuner();
  TestTuner(const TestTuner&) = delete;
  TestTuner& operator=(const TestTuner&) = delete;

  int version() const { return version_; }
  void* context() const { return context_; }
  const host::TunerInterface& interface() const { return *interface_; }
  // The constants as init left them, of the version's size; empty before v5.
  const std::vector<unsigned char>& constants() const { return constants_; }

  // Calls getCollInfo with this table (v2: with both flags set), algorithm and protocol -1.
  Answer Ask(const Call& call, const CostTable& table = {}, const Unusual& unusual = {}) const;
  size_t AskChunk(int collective, int algorithm, int protocol, size_t proposed) const;

 private:
  int version_;
  std::unique_ptr<host::TunerInterface> interface_;
  void* context_ = nullptr;
  std::vector<unsigned char> constants_;
};

// Sets NCCLTUNE_CONFIG to a file with this content until the end of the scope.
class ScopedConfig {
 public:
  explicit ScopedConfig(std::string_view content) : file_(content) {}

 private:
  ScopedFile file_;
  ScopedVariable variable_{"NCCLTUNE_CONFIG", file_.path().c_str()};
};

// A communicator of kScale with these rules.
class RuledTuner : ScopedConfig, public TestTuner {
 public:
  RuledTuner(int version, std::string_view rules)
      : ScopedConfig(rules), TestTuner(version, kScale) {}
};

// The pair that NCCL would run: named by v2, with the least cost since v3.
struct Pair {
  int algorithm = -1;
  int protocol = -1;
  bool operator==(const Pair&) const = default;
};
Pair Chosen(const Answer& answer, int version);

// The lines logged since the last call, as "WARN text" and "INFO text".
std::vector<std::string> TakeLog();

// Sets the code that the program's ncclGetVersion returns, such as 22809. 0 makes it fail, as if
// there were no NCCL.
void SetNcclVersion(int code);

// The pattern that the constants contain before init.
inline constexpr unsigned char kConstantsPattern = 0xA5;

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TESTS_TUNER_SUPPORT_H_
