// SPDX-License-Identifier: Apache-2.0
//
// A folder of records, and the shipped shared object played in forked children, because the
// recorder and the plugin behind it belong to a process.
#pragma once

#include "common/json.h"
#include "nccl_calls.h"
#include "testing.h"

namespace nccltune::profiler {

namespace fs = std::filesystem;

class Recorded : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "recorder-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    variables_.Set("NCCLTUNE_RECORD", folder_ + "/records");
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  // Runs `play` in a child, which ends by exit; returns its exit code, or -1.
  static int InChild(const std::function<int()>& play) {
    const pid_t child = fork();
    if (child == 0) std::exit(play());
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string records() const { return folder_ + "/records"; }

  static std::string Content(const fs::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    if (!fs::exists(records())) return files;
    for (const auto& entry : fs::directory_iterator(records())) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  static json::Value Parsed(const fs::path& path) {
    json::Value value;
    json::Error error;
    EXPECT_TRUE(json::Parse(Content(path), &value, &error)) << error.message;
    return value;
  }

  json::Value OnlyFile() const {
    const std::vector<fs::path> files = Files();
    EXPECT_EQ(files.size(), 1U);
    return files.empty() ? json::Value() : Parsed(files[0]);
  }

  std::string folder_;
  ScopedVariables variables_;
};

inline int64_t Int(const json::Value& value, std::string_view name) {
  const json::Value* const member = value.Find(name);
  return member != nullptr && member->AsInt() != nullptr ? *member->AsInt() : -1;
}

// "AllReduce ncclFloat32 4096 RING LL 1 flags" by count, of all communicators.
using Rows = std::map<std::string, int64_t>;

inline void AddRows(const json::Value& communicator, std::string_view list, Rows* rows) {
  for (const json::Value& row : *communicator.Find(list)->AsArray()) {
    std::string text;
    for (const auto& [name, value] : *row.AsObject()) {
      if (name == "count") continue;
      if (value.AsString() != nullptr) text += *value.AsString() + " ";
      if (value.AsInt() != nullptr) text += std::to_string(*value.AsInt()) + " ";
      if (value.AsBool() != nullptr) text += name + " ";
    }
    (*rows)[text] += Int(row, "count");
  }
}

inline Rows RowsOf(const json::Value& file, std::string_view list) {
  Rows rows;
  for (const json::Value& communicator : *file.Find("communicators")->AsArray()) {
    AddRows(communicator, list, &rows);
  }
  return rows;
}

using Newest = PlayedCommunicator<abi::Profiler<7>>;

}  // namespace nccltune::profiler
