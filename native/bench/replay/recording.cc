// SPDX-License-Identifier: Apache-2.0
#include "bench/replay/recording.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace nccltune::bench {
namespace {

const Timing& AnyOf(const std::vector<Timing>& timings, Random* random) {
  return timings[random->Below(timings.size())];
}

}  // namespace

double MedianTime(const std::vector<Timing>& timings) {
  std::vector<double> times;
  times.reserve(timings.size());
  for (const Timing& timing : timings) times.push_back(timing.time_us);
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

double Between(size_t bytes, size_t low_bytes, double low, size_t high_bytes, double high) {
  const double from = std::log(static_cast<double>(low_bytes));
  const double to = std::log(static_cast<double>(high_bytes));
  const double share = (std::log(static_cast<double>(bytes)) - from) / (to - from);
  return std::exp(std::log(low) + share * (std::log(high) - std::log(low)));
}

bool Series::Covers(size_t bytes) const {
  return !sizes_.empty() && sizes_.begin()->first <= bytes && bytes <= sizes_.rbegin()->first;
}

std::optional<Timing> Series::Draw(size_t bytes, Random* random) const {
  if (!Covers(bytes)) return std::nullopt;
  const auto above = sizes_.lower_bound(bytes);
  if (above->first == bytes) return AnyOf(above->second, random);
  const auto below = std::prev(above);
  const double below_median = MedianTime(below->second);
  const double above_median = MedianTime(above->second);
  const double median = Between(bytes, below->first, below_median, above->first, above_median);
  // Compares distances on the logarithmic scale: bytes / below < above / bytes.
  const bool below_is_nearer =
      static_cast<double>(bytes) * static_cast<double>(bytes) <
      static_cast<double>(below->first) * static_cast<double>(above->first);
  const auto& nearer = below_is_nearer ? below->second : above->second;
  Timing timing = AnyOf(nearer, random);
  timing.time_us *= median / (below_is_nearer ? below_median : above_median);
  return timing;
}
namespace {

template <typename T>
bool Fits(const std::optional<T>& recorded, T asked, int* known) {
  if (!recorded) return true;
  ++*known;
  return *recorded == asked;
}

// Returns whether the calls were grouped in the same way. Imported calls with several pipe ops were
// grouped in an unknown way and are no plain calls.
bool IsGroupOf(const CallKind& kind, int group_calls) {
  return kind.group_calls == group_calls && (group_calls > 1 || kind.pipe_ops == 1);
}

// Returns the number of known properties of the series that match the step, or -1 if a property
// contradicts the step.
int Fitness(const CallKind& kind, const Step& step, const Choice& choice) {
  int known = 0;
  const bool fits = kind.collective == step.collective && kind.choice == choice &&
                    kind.in_place == step.in_place && kind.registered == step.registered &&
                    kind.graph == step.graph && IsGroupOf(kind, step.group_calls) &&
                    Fits(kind.dtype, step.dtype, &known) &&
                    (!Reduces(step.collective) || Fits(kind.redop, step.redop, &known)) &&
                    (!HasRoot(step.collective) || Fits(kind.root, step.root, &known));
  return fits ? known : -1;
}

}  // namespace

const Series* Recording::Find(const Step& step, const Choice& choice) const {
  const Series* best = nullptr;
  int best_fitness = -1;
  for (const auto& [kind, series] : series_) {
    const int fitness = Fitness(kind, step, choice);
    if (fitness > best_fitness && series.Covers(step.bytes)) {
      best = &series;
      best_fitness = fitness;
    }
  }
  return best;
}

std::optional<int> Recording::FindPipeOps(bool registered, int group_calls) const {
  if (!registered && group_calls == 1) return 1;
  for (const auto& [kind, series] : series_) {
    if (kind.registered == registered && IsGroupOf(kind, group_calls)) return kind.pipe_ops;
  }
  return std::nullopt;
}

std::optional<Costs> Recording::FindCosts(Collective collective, size_t bytes) const {
  const auto above = tables_.lower_bound({collective, bytes});
  if (above == tables_.end() || above->first.first != collective) return std::nullopt;
  if (above->first.second == bytes) return above->second;
  if (above == tables_.begin()) return std::nullopt;
  const auto below = std::prev(above);
  if (below->first.first != collective) return std::nullopt;
  Costs costs;
  for (const auto& [combination, low] : below->second) {
    const auto high = std::find_if(
        above->second.begin(), above->second.end(),
        [&combination = combination](const auto& entry) { return entry.first == combination; });
    if (high == above->second.end()) continue;
    costs.emplace_back(combination,
                       Between(bytes, below->first.second, low, above->first.second, high->second));
  }
  return costs;
}

namespace {

using json::Value;

constexpr int64_t kNewestSchema = 1;

// Reads a number of bytes or elements, as ReadInteger does, but without an upper limit.
bool ReadSize(const Value& value, std::string_view key, int64_t low, std::optional<int64_t>* out) {
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

// Reads {"algorithm": "tree", "protocol": "ll"}.
bool ReadCombination(const Value& value, host::Combination* combination) {
  const std::optional<int> algorithm = NumberOf(AlgorithmNames(), TextOf(value, "algorithm"));
  const std::optional<int> protocol = NumberOf(ProtocolNames(), TextOf(value, "protocol"));
  if (!algorithm || !protocol) return false;
  *combination = {*algorithm, *protocol};
  return true;
}

// Reads the choice. Sets *tuned if the sample was measured under rules. The caller skips such
// samples, because those rules may differ from the rules of this replay. Returns false if the
// choice is missing or invalid.
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
      !ReadSize(*member, "chunk_bytes", 1, &chunk_bytes)) {
    return false;
  }
  choice->channels = static_cast<int>(channels.value_or(-1));
  choice->chunk_bytes = static_cast<size_t>(chunk_bytes.value_or(0));
  return true;
}

void ReadRan(const Value& sample, std::optional<ExecutedChoice>* ran) {
  const Value* member = sample.Find("ran");
  if (member == nullptr || member->AsObject() == nullptr) return;
  ExecutedChoice read;
  std::optional<int64_t> channels;
  if (!ReadCombination(*member, &read.combination)) return;
  if (ReadInteger(*member, "channels", 1, &channels) && channels) {
    read.channels = static_cast<int>(*channels);
  }
  *ran = read;
}

}  // namespace

std::string TextOf(const Value& value, std::string_view key) {
  const Value* member = value.Find(key);
  const std::string* text = member == nullptr ? nullptr : member->AsString();
  return text == nullptr ? "" : *text;
}

bool ReadInteger(const Value& value, std::string_view key, int64_t low,
                 std::optional<int64_t>* out) {
  const Value* member = value.Find(key);
  if (member == nullptr || member->IsNull()) return true;
  const int64_t* number = member->AsInt();
  if (number == nullptr || *number < low || *number > kMaxCount) return false;
  *out = *number;
  return true;
}

bool IsNewer(const Value& value) {
  const Value* version = value.Find("schema_version");
  return version != nullptr && version->AsInt() != nullptr && *version->AsInt() > kNewestSchema;
}

LineResult ReadSample(const Value& value, Sample* sample) {
  if (value.AsObject() == nullptr) return LineResult::kDamaged;
  if (IsNewer(value)) return LineResult::kNewer;
  CallKind& kind = sample->kind;
  std::optional<int64_t> bytes;
  std::optional<int64_t> root;
  std::optional<int64_t> wrong;
  std::optional<int64_t> group_calls;
  std::optional<int64_t> pipe_ops;
  bool tuned = false;
  const Value* time = value.Find("time_us");
  const std::string collective = TextOf(value, "collective");
  if (collective.empty() || time == nullptr || !time->ToNumber(&sample->timing.time_us) ||
      !(sample->timing.time_us > 0) || !std::isfinite(sample->timing.time_us) ||
      !ReadSize(value, "bytes", 0, &bytes) || !bytes ||
      !ReadInteger(value, "nodes", 1, &sample->nodes) ||
      !ReadInteger(value, "ranks", 1, &sample->ranks) || !ReadSize(value, "wrong", 0, &wrong) ||
      !ReadFlag(value, "in_place", &kind.in_place) ||
      !ReadFlag(value, "registered", &kind.registered) || !ReadFlag(value, "graph", &kind.graph) ||
      !ReadInteger(value, "group_calls", 1, &group_calls) ||
      !ReadInteger(value, "pipe_ops", 1, &pipe_ops) || !ReadChoice(value, &kind.choice, &tuned)) {
    return LineResult::kDamaged;
  }
  const std::optional<int> number = NumberOf(AllCollectiveNames(), collective);
  if (tuned || !number || wrong.value_or(0) > 0 || *bytes == 0) return LineResult::kPassedOver;
  kind.collective = static_cast<Collective>(*number);
  kind.group_calls = static_cast<int>(group_calls.value_or(1));
  kind.pipe_ops = static_cast<int>(pipe_ops.value_or(1));
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
  // Read the root only for collectives with a root, because nccl-tests writes -1 for the others.
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

LineResult ReadTable(const Value& value, TableLine* table) {
  if (value.AsObject() == nullptr) return LineResult::kDamaged;
  if (IsNewer(value)) return LineResult::kNewer;
  std::optional<int64_t> bytes;
  const std::optional<int> collective = NumberOf(AllCollectiveNames(), TextOf(value, "collective"));
  const Value* costs = value.Find("costs");
  if (!collective || !ReadSize(value, "bytes", 1, &bytes) || !bytes ||
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

}  // namespace nccltune::bench
