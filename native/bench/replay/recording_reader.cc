// SPDX-License-Identifier: Apache-2.0
// Reads the files of a study into a Recording.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <tuple>

#include "bench/replay/recording.h"
#include "common/content_hash.h"
#include "common/file.h"
#include "common/json.h"
#include "common/text.h"

namespace nccltune::bench {
namespace {

using json::Value;

constexpr size_t kLargestPlatform = size_t{1} << 20;
constexpr size_t kLongestLine = size_t{1} << 20;

std::string InWords(RecordedScale scale) {
  return std::to_string(scale.nodes) + "/" + std::to_string(scale.ranks);
}

auto Ordered(const CallKind& kind) {
  const Choice& choice = kind.choice;
  return std::tuple(kind.collective, kind.dtype, kind.redop, kind.root, kind.in_place,
                    kind.registered, kind.graph, kind.group_calls, kind.pipe_ops, choice.kind,
                    choice.combination.algorithm, choice.combination.protocol, choice.channels,
                    choice.chunk_bytes);
}

struct ByContent {
  bool operator()(const CallKind& a, const CallKind& b) const { return Ordered(a) < Ordered(b); }
};

}  // namespace

class RecordingReader {
 public:
  RecordingReader(std::string study, std::optional<RecordedScale> scale, std::string* error,
                  std::string* hint)
      : study_(std::move(study)), asked_scale_(scale), error_(error), hint_(hint) {}

  std::unique_ptr<Recording> Read() {
    struct stat facts{};
    if (stat(study_.c_str(), &facts) != 0) return Fail(study_, std::strerror(errno));
    if (!S_ISDIR(facts.st_mode)) return Fail(study_, "is a file, not a study folder");
    recording_.reset(new Recording);
    recording_->name_ = std::filesystem::path(study_).lexically_normal().filename().string();
    if (recording_->name_.empty() || recording_->name_ == ".") {
      recording_->name_ =
          std::filesystem::absolute(study_).lexically_normal().parent_path().filename();
    }
    const auto sample = [this](const Value& line) { return TakeSample(line); };
    const auto table = [this](const Value& line) { return TakeTable(line); };
    if (!ReadPlatform() || !ReadLines("samples.jsonl", true, sample) || !PickScale() ||
        !ReadLines("tables.jsonl", false, table)) {
      return nullptr;
    }
    Collect();
    return std::move(recording_);
  }

 private:
  std::nullptr_t Fail(const std::string& where, const std::string& what,
                      const std::string& hint =
                          "--replay takes the folder of a study, see "
                          "examples/ for two") {
    *error_ = where + ": " + what;
    *hint_ = hint;
    return nullptr;
  }

  std::string PathOf(const char* name) const { return study_ + "/" + name; }

  bool ReadPlatform() {
    const std::string path = PathOf("platform.json");
    struct stat facts{};
    if (stat(path.c_str(), &facts) != 0 && errno == ENOENT) return true;
    std::string content;
    std::string problem;
    Value platform;
    json::Error error;
    if (!ReadFile(path, kLargestPlatform, &content, &problem)) {
      Fail(path, problem);
      return false;
    }
    if (!json::Parse(content, &platform, &error) || platform.AsObject() == nullptr) {
      Fail(path, "is damaged: " + (error.message.empty() ? "not an object" : error.message));
      return false;
    }
    if (IsNewer(platform)) {
      Fail(path, "was written by a newer nccltune", "update nccltune");
      return false;
    }
    const std::string name = TextOf(platform, "name");
    if (!name.empty()) recording_->name_ = name;
    recording_->gpu_ = TextOf(platform, "gpu");
    recording_->nccl_version_ = ParseNcclVersion(TextOf(platform, "nccl_version"));
    ReadInteger(platform, "nodes", 1, &platform_nodes_);
    ReadInteger(platform, "gpus", 1, &platform_gpus_);
    if (const Value* settings = platform.Find("settings")) {
      recording_->nvls_ = TextOf(*settings, "NCCL_NVLS_ENABLE") != "0";
    }
    return true;
  }

  // Passes each line of the file to `take`. An incomplete last line, left by an interrupted run, is
  // skipped. Returns false, and stores the error, if the file cannot be read or a line is damaged
  // or too new. A missing file is an error only if `needed`.
  template <typename Take>
  bool ReadLines(const char* name, bool needed, const Take& take) {
    const std::string path = PathOf(name);
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      if (!needed && errno == ENOENT) return true;
      Fail(path, std::string("cannot be read: ") + std::strerror(errno));
      return false;
    }
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
      const bool whole = !file.eof();
      recording_->content_hash_ = 31 * recording_->content_hash_ + ContentHash(line);
      if (Trimmed(line).empty()) continue;
      Value value;
      json::Error error;
      LineResult result = LineResult::kDamaged;
      if (line.size() <= kLongestLine && json::Parse(line, &value, &error)) result = take(value);
      if (result == LineResult::kNewer) {
        Fail(path + ":" + std::to_string(number), "was written by a newer nccltune",
             "update nccltune");
        return false;
      }
      if (result != LineResult::kDamaged || (!whole && value.IsNull())) continue;
      Fail(path + ":" + std::to_string(number),
           "is damaged" + (error.message.empty() ? "" : ": " + error.message),
           "fix or delete that line; the others are untouched");
      return false;
    }
    if (!file.bad()) return true;
    Fail(path, "cannot be read to its end");
    return false;
  }

  LineResult TakeSample(const Value& value) {
    Sample sample;
    const LineResult result = ReadSample(value, &sample);
    if (result != LineResult::kTaken) return result;
    const RecordedScale scale = ScaleOf(sample.nodes, sample.ranks);
    by_scale_[scale][sample.kind].Add(sample.bytes, sample.timing);
    if (!recording_->nccl_version_) {
      recording_->nccl_version_ = ParseNcclVersion(sample.nccl_version);
    }
    return result;
  }

  LineResult TakeTable(const Value& value) {
    TableLine table;
    const LineResult result = ReadTable(value, &table);
    if (result != LineResult::kTaken) return result;
    if (ScaleOf(table.nodes, table.ranks) == recording_->scale_) {
      recording_->tables_[{table.collective, table.bytes}] = std::move(table.costs);
    }
    return result;
  }

  // Returns the scale with the given numbers. A missing number is taken from platform.json, or is 0
  // if platform.json does not have the number.
  RecordedScale ScaleOf(std::optional<int64_t> nodes, std::optional<int64_t> ranks) const {
    if (!nodes) nodes = platform_nodes_;
    if (!ranks) ranks = platform_gpus_;
    return {static_cast<int>(nodes.value_or(0)), static_cast<int>(ranks.value_or(0))};
  }

  bool PickScale() {
    if (by_scale_.empty()) {
      Fail(PathOf("samples.jsonl"), "holds no timing that can be replayed");
      return false;
    }
    std::string listed;
    for (const auto& [scale, kinds] : by_scale_) listed += " " + InWords(scale);
    if (!asked_scale_ && by_scale_.size() > 1) {
      Fail(study_, "was recorded at several scales:" + listed, "name one with --scale NODES/RANKS");
      return false;
    }
    const RecordedScale scale = asked_scale_.value_or(by_scale_.begin()->first);
    const auto found = by_scale_.find(scale);
    if (found == by_scale_.end()) {
      Fail(study_, "was not recorded at " + InWords(scale) + " but at" + listed,
           "name one of them with --scale NODES/RANKS");
      return false;
    }
    recording_->scale_ = found->first;
    if (found->first.nodes == 0 || found->first.ranks == 0) {
      Fail(study_, "does not state the number of nodes and ranks",
           "add nodes and gpus to platform.json");
      return false;
    }
    for (auto& [kind, series] : found->second) {
      recording_->series_.emplace_back(kind, std::move(series));
    }
    return true;
  }

  // Collects the combinations that the platform can run: those with a recorded timing.
  void Collect() {
    std::map<Collective, std::set<std::pair<int, int>>> seen;
    for (const auto& [kind, series] : recording_->series_) {
      const host::Combination& one = kind.choice.combination;
      if (one.known()) seen[kind.collective].insert({one.algorithm, one.protocol});
    }
    for (const auto& [collective, pairs] : seen) {
      for (const auto& [algorithm, protocol] : pairs) {
        recording_->combinations_[collective].push_back({algorithm, protocol});
      }
    }
  }

  const std::string study_;
  const std::optional<RecordedScale> asked_scale_;
  std::string* error_;
  std::string* hint_;
  std::unique_ptr<Recording> recording_;
  std::optional<int64_t> platform_nodes_;
  std::optional<int64_t> platform_gpus_;
  std::map<RecordedScale, std::map<CallKind, Series, ByContent>> by_scale_;
};

std::unique_ptr<Recording> Recording::Open(const std::string& study,
                                           std::optional<RecordedScale> scale, std::string* error,
                                           std::string* hint) {
  return RecordingReader(study, scale, error, hint).Read();
}

}  // namespace nccltune::bench
