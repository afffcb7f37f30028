// SPDX-License-Identifier: Apache-2.0
// Shared parts of the plugin's tests: a temporary environment and files, and a uniform interface to
// the exported structs of all versions.
#pragma once

#include "abi/tuner.h"
#include "host/plugin_log.h"
#include "host/tuner_interface.h"
#include "standard.h"
#include "testing.h"
#include "tuner/decision.h"

extern "C" {
extern const nccltune::abi::TunerV2 ncclTunerPlugin_v2;
extern const nccltune::abi::TunerV3 ncclTunerPlugin_v3;
extern const nccltune::abi::TunerV4 ncclTunerPlugin_v4;
extern const nccltune::abi::TunerV5 ncclTunerPlugin_v5;
extern const nccltune::abi::TunerV6 ncclTunerPlugin_v6;
extern const nccltune::abi::TunerV7 ncclTunerPlugin_v7;

// NCCL's, of this program. `nccl_version`: see SetNcclVersion.
inline std::atomic<int> nccl_version{0};
[[gnu::visibility("default"), gnu::used]] inline int ncclGetVersion(int* version) {
  if (nccl_version == 0) return 1;
  *version = nccl_version;
  return 0;
}
}

namespace nccltune::tuner {

inline constexpr std::array<int, 6> kVersions = {2, 3, 4, 5, 6, 7};

inline constexpr Scale kScale = {4, 32};

inline std::string NameOfVersion(const ::testing::TestParamInfo<int>& test) {
  return "v" + std::to_string(test.param);
}

// A file in the test's own directory.
class ScopedFile {
 public:
  explicit ScopedFile(std::string_view content) {
    path_ = ::testing::TempDir() + "nccltune-tuner-XXXXXX";
    const int descriptor = mkstemp(path_.data());
    EXPECT_GE(descriptor, 0);
    close(descriptor);
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~ScopedFile() { unlink(path_.c_str()); }
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
  CostTable() {
    for (size_t i = 0; i < entries.size(); ++i) entries[i] = 10.0F + static_cast<float>(i);
  }

  float& at(int algorithm, int protocol) { return entries[IndexOf(algorithm, protocol)]; }
  float at(int algorithm, int protocol) const { return entries[IndexOf(algorithm, protocol)]; }
  // Returns it in the type that NCCL passes.
  float** passed() { return reinterpret_cast<float**>(entries.data()); }
  bool SameBytes(const CostTable& other) const {
    return std::memcmp(entries.data(), other.entries.data(), sizeof entries) == 0;
  }

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

// The pattern that the constants contain before init.
inline constexpr unsigned char kConstantsPattern = 0xA5;

// One communicator of the plugin, made through the exported struct of one version.
class TestTuner {
 public:
  TestTuner(int version, Scale scale, bool with_log = true);
  ~TestTuner() { EXPECT_EQ(interface_->Finalize(context_), abi::kSuccess); }
  TestTuner(const TestTuner&) = delete;
  TestTuner& operator=(const TestTuner&) = delete;

  int version() const { return version_; }
  void* context() const { return context_; }
  const host::TunerInterface& interface() const { return *interface_; }
  // The constants as init left them, of the version's size; empty before v5.
  const std::vector<unsigned char>& constants() const { return constants_; }

  // Calls getCollInfo with this table (v2: with both flags set), algorithm and protocol -1.
  Answer Ask(const Call& call, const CostTable& table = {}, const Unusual& unusual = {}) const {
    Answer answer;
    answer.table = table;
    answer.channels = unusual.channels;
    host::CollInfoCall info;
    info.collective = static_cast<abi::TunedCollective>(call.collective);
    info.bytes = call.bytes;
    info.pipe_ops = call.pipe_ops;
    info.registered = call.registered == 1;
    info.table = unusual.has_table ? answer.table.passed() : nullptr;
    info.algorithms = unusual.algorithms;
    info.channels = &answer.channels;
    info.collnet_support = 1;
    info.nvls_support = 1;
    info.algorithm = &answer.algorithm;
    info.protocol = &answer.protocol;
    void* const context = unusual.has_context ? context_ : nullptr;
    EXPECT_EQ(interface_->GetCollInfo(context, info), abi::kSuccess);
    return answer;
  }
  size_t AskChunk(int collective, int algorithm, int protocol, size_t proposed) const {
    size_t chunk_bytes = proposed;
    host::ChunkCall call;
    call.collective = static_cast<abi::TunedCollective>(collective);
    call.bytes = 1U << 20U;
    call.combination = {algorithm, protocol};
    call.chunk_bytes = &chunk_bytes;
    EXPECT_EQ(interface_->GetChunkSize(context_, call), abi::kSuccess);
    return chunk_bytes;
  }

 private:
  int version_;
  std::unique_ptr<host::TunerInterface> interface_;
  void* context_ = nullptr;
  std::vector<unsigned char> constants_;
};

inline const void* StructOf(int version) {
  const std::array<const void*, 6> structs = {&ncclTunerPlugin_v2, &ncclTunerPlugin_v3,
                                              &ncclTunerPlugin_v4, &ncclTunerPlugin_v5,
                                              &ncclTunerPlugin_v6, &ncclTunerPlugin_v7};
  return structs.at(static_cast<size_t>(version - 2));
}

inline TestTuner::TestTuner(int version, Scale scale, bool with_log)
    : version_(version), interface_(host::WrapTuner(version, StructOf(version))) {
  constants_.assign(interface_->constants_size(), kConstantsPattern);
  abi::NvlDomainInfoV5 domains = {1, 1, 1};
  host::InitCall call;
  call.ranks = scale.ranks;
  call.nodes = scale.nodes;
  call.log = with_log ? host::plugin_log::Function() : nullptr;
  call.nvl_domains = &domains;
  call.constants = constants_.empty() ? nullptr : constants_.data();
  EXPECT_EQ(interface_->Init(call, &context_), abi::kSuccess);
}

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

inline Pair Chosen(const Answer& answer, int version) {
  if (version == 2) return {answer.algorithm, answer.protocol};
  Pair best;
  float least = 0.0F;
  for (int a = 0; a < abi::kNumAlgorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) {
      const float cost = answer.table.at(a, p);
      if (cost < 0.0F || (best.algorithm >= 0 && cost >= least)) continue;
      best = {a, p};
      least = cost;
    }
  }
  return least == 0.0F ? best : Pair{};
}

// The lines logged since the last call, as "WARN text" and "INFO text".
inline std::vector<std::string> TakeLog() {
  std::vector<std::string> lines;
  for (const host::LogLine& line : host::plugin_log::Take().lines) {
    lines.push_back(host::LogLevelName(line.level) + " " + line.text);
  }
  return lines;
}

// Sets the code that the program's ncclGetVersion returns, such as 22809. 0 makes it fail, as if
// there were no NCCL.
inline void SetNcclVersion(int code) { nccl_version = code; }

}  // namespace nccltune::tuner
