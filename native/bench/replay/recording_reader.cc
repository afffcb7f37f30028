// SPDX-License-Identifier: Apache-2.0
// Reads a study's files; model/sample.py and model/platform.py say what is in them.
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

constexpr int64_t kSchemaVersion = 1;
constexpr size_t kLargestPlatform = size_t{1} << 20;
constexpr size_t kLongestLine = size_t{1} << 20;

// What a line is of no use for is passed over; what is no line of such a file is an error.
enum class LineResult { kTaken, kPassedOver, kDamaged, kNewer };

std::string TextOf(const Value& value, std::string_view key) {
  const Value* member = value.Find(key);
  const std::string* text = member == nullptr ? nullptr : member->AsString();
  return text == nullptr ? "" : *text;
}

// An integer of at least `low`; false if it is there and no such number.
bool ReadInteger(const Value& value, std::string_view key, int64_t low,
                 std::optional<int64_t>* out) {
  const Value* member = value.Find(key);
  if (member == nullptr || member->IsNull()) return true;
  const int64_t* number = member->AsInt();
  if (number == nullptr || *number < low) return false;
  *out = *number;
  return true;
}

bool ReadFlag(const Value& value, std::string_view key, bool* out) {
  const Value* member = value.Find(key);
  if (member == nullptr) return true;
  const bool* truth = member->AsBool();
  if (truth != nullptr) *out = *truth;
  return truth != nullptr;
}

bool IsNewer(const Value& value) {
  const Value* version = value.Find("schema_version");
  return version != nullptr && version->AsInt() != nullptr && *version->AsInt() > kSchemaVersion;
}

// {"algorithm": "tree", ...}
bool ReadCombination(const Value& value, host::Combination* combination) {
  const std::optional<int> algorithm = NumberOf(AlgorithmNames(), TextOf(value, "algorithm"));
  const std::optional<int> protocol = NumberOf(ProtocolNames(), TextOf(value, "protocol"));
  if (!algorithm || !protocol) return false;
  *combination = {*algorithm, *protocol};
  return true;
}

// *tuned: a run under rules, which are not those of this replay.
bool ReadChoice(const Value& sample, Choice* choice, bool* tuned) {
  const Value* member = sample.Find("choice");
  if (member == nullptr) return false;
  if (const std::string* word = member->AsString()) {
    *tuned = *word == "tuned";
    return *tuned || *word == "default";
  }
  choice->kind = Choice::Kind::kForced;
  std::optional<int64_t> channels;
  std::optional<int64_t> chunk_bytes;
  if (!ReadCombination(*member, &choice->combination) ||
      !ReadInteger(*member, "channels", 1, &channels) ||
      !ReadInteger(*member, "chunk_bytes", 1, &chunk_bytes)) {
    return false;
  }
  choice->channels = static_cast<int>(channels.value_or(-1));
  choice->chunk_bytes = static_cast<size_t>(chunk_bytes.value_or(0));
  return true;
}

void ReadRan(const Value& sample, std::optional<Ran>* ran) {
  const Value* member = sample.Find("ran");
  if (member == nullptr || member->AsObject() == nullptr) return;
  Ran read;
  std::optional<int64_t> channels;
  if (!ReadCombination(*member, &read.combination)) return;
  if (ReadInteger(*member, "channels", 1, &channels) && channels) {
    read.channels = static_cast<int>(*channels);
  }
  *ran = read;
}

struct Sample {
  CallKind kind;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Timing timing;
  std::string nccl_version;
};

LineResult ReadSample(const Value& value, Sample* sample) {
  if (value.AsObject() == nullptr) return LineResult::kDamaged;
  if (IsNewer(value)) return LineResult::kNewer;
  CallKind& kind = sample->kind;
  std::optional<int64_t> bytes;
  std::optional<int64_t> root;
  std::optional<int64_t> wrong;
  bool tuned = false;
  const Value* time = value.Find("time_us");
  const std::string collective = TextOf(value, "collective");
  if (collective.empty() || time == nullptr || !time->ToNumber(&sample->timing.time_us) ||
      !(sample->timing.time_us > 0) || !std::isfinite(sample->timing.time_us) ||
      !ReadInteger(value, "bytes", 0, &bytes) || !bytes ||
      !ReadInteger(value, "nodes", 1, &sample->nodes) ||
      !ReadInteger(value, "ranks", 1, &sample->ranks) || !ReadInteger(value, "wrong", 0, &wrong) ||
      !ReadFlag(value, "in_place", &kind.in_place) ||
      !ReadFlag(value, "registered", &kind.registered) || !ReadFlag(value, "graph", &kind.graph) ||
      !ReadChoice(value, &kind.choice, &tuned)) {
    return LineResult::kDamaged;
  }
  const std::optional<int> number = NumberOf(AllCollectiveNames(), collective);
  if (tuned || !number || wrong.value_or(0) > 0 || *bytes == 0) return LineResult::kPassedOver;
  kind.collective = static_cast<Collective>(*number);
  const std::string dtype = TextOf(value, "dtype");
  if (!dtype.empty()) {
    const std::optional<int> found = NumberOf(DtypeNames(), dtype);
    if (!found) return LineResult::kPassedOver;
    kind.dtype = static_cast<Dtype>(*found);
  }
  const std::string redop = TextOf(value, "redop");
  if (!redop.empty() && Reduces(kind.collective)) {
    const std::optional<int> found = NumberOf(RedopNames(), redop);
    if (!found) return LineResult::kPassedOver;
    kind.redop = static_cast<Redop>(*found);
  }
  // nccl-tests writes -1 where there is none.
  if (HasRoot(kind.collective) && ReadInteger(value, "root", 0, &root) && root) {
    kind.root = static_cast<int>(*root);
  }
  sample->bytes = static_cast<size_t>(*bytes);
  sample->timing.checked = wrong.has_value();
  ReadRan(value, &sample->timing.ran);
  if (const Value* source = value.Find("source")) {
    sample->nccl_version = TextOf(*source, "nccl_version");
  }
  return LineResult::kTaken;
}

// A step of a study's table, as the bench's own answers to `table` have it.
struct TableLine {
  Collective collective = Collective::kAllReduce;
  size_t bytes = 0;
  std::optional<int64_t> nodes;
  std::optional<int64_t> ranks;
  Costs costs;
};

LineResult ReadTable(const Value& value, TableLine* table) {
  if (value.AsObject() == nullptr) return LineResult::kDamaged;
  if (IsNewer(value)) return LineResult::kNewer;
  std::optional<int64_t> bytes;
  const std::optional<int> collective = NumberOf(AllCollectiveNames(), TextOf(value, "collective"));
  const Value* costs = value.Find("costs");
  if (!collective || !ReadInteger(value, "bytes", 1, &bytes) || !bytes ||
      !ReadInteger(value, "nodes", 1, &table->nodes) ||
      !ReadInteger(value, "ranks", 1, &table->ranks) || costs == nullptr ||
      costs->AsObject() == nullptr) {
    return LineResult::kDamaged;
  }
  for (const auto& [name, cost] : *costs->AsObject()) {
    const std::optional<host::Combination> combination = host::CombinationByName(name);
    double microseconds = 0;
    if (!combination || !cost.ToNumber(&microseconds) || !(microseconds > 0) ||
        !std::isfinite(microseconds)) {
      return LineResult::kDamaged;
    }
    table->costs.emplace_back(*combination, microseconds);
  }
  table->collective = static_cast<Collective>(*collective);
  table->bytes = static_cast<size_t>(*bytes);
  return LineResult::kTaken;
}

std::string InWords(Scale scale) {
  return std::to_string(scale.nodes) + "/" + std::to_string(scale.ranks);
}

auto Ordered(const CallKind& kind) {
  const Choice& choice = kind.choice;
  return std::tuple(kind.collective, kind.dtype, kind.redop, kind.root, kind.in_place,
                    kind.registered, kind.graph, choice.kind, choice.combination.algorithm,
                    choice.combination.protocol, choice.channels, choice.chunk_bytes);
}

struct ByContent {
  bool operator()(const CallKind& a, const CallKind& b) const { return Ordered(a) < Ordered(b); }
};

}  // namespace

class RecordingReader {
 public:
  RecordingReader(std::string study, std::optional<Scale> scale, std::string* error,
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

  // Gives each line of the file to `take`. A last line that an interruption cut short is left out.
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
           "mend or delete that line; the others are untouched");
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
    const Scale scale = ScaleOf(sample.nodes, sample.ranks);
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

  // 0: not told.
  Scale ScaleOf(std::optional<int64_t> nodes, std::optional<int64_t> ranks) const {
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
    const auto found = asked_scale_ ? by_scale_.find(*asked_scale_) : by_scale_.begin();
    if (found == by_scale_.end()) {
      Fail(study_, "was not recorded at " + InWords(*asked_scale_) + " but at" + listed,
           "name one of them with --scale NODES/RANKS");
      return false;
    }
    recording_->scale_ = found->first;
    if (found->first.nodes == 0 || found->first.ranks == 0) {
      Fail(study_, "does not say on how many nodes and ranks it was recorded",
           "platform.json should hold nodes and gpus");
      return false;
    }
    for (auto& [kind, series] : found->second) {
      recording_->series_.emplace_back(kind, std::move(series));
    }
    return true;
  }

  // Which combinations the platform has shown that it can run.
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
  const std::optional<Scale> asked_scale_;
  std::string* error_;
  std::string* hint_;
  std::unique_ptr<Recording> recording_;
  std::optional<int64_t> platform_nodes_;
  std::optional<int64_t> platform_gpus_;
  std::map<Scale, std::map<CallKind, Series, ByContent>> by_scale_;
};

std::unique_ptr<Recording> Recording::Open(const std::string& study, std::optional<Scale> scale,
                                           std::string* error, std::string* hint) {
  return RecordingReader(study, scale, error, hint).Read();
}

}  // namespace nccltune::bench
