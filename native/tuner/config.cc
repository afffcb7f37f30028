// SPDX-License-Identifier: Apache-2.0
#include "tuner/config.h"

#include <strings.h>
#include <unistd.h>

#include <mutex>
#include <utility>

#include "abi/tuner.h"
#include "common/content_hash.h"
#include "common/file.h"
#include "common/text.h"

namespace nccltune::tuner {
namespace {

constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

bool IsCollnet(const Rule& rule) {
  return rule.algorithm == abi::kCollnetDirect || rule.algorithm == abi::kCollnetChain;
}

class Reader {
 public:
  explicit Reader(TunerConfig* config) : config_(config) {}

  void Read(std::string_view content) {
    if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) {
      line_ = 1;
      Bad("the file is UTF-16; save it as UTF-8 or plain ASCII");
      return;
    }
    if (content.starts_with(kUtf8Mark)) content.remove_prefix(kUtf8Mark.size());
    while (!content.empty()) {
      const size_t end = content.find('\n');
      std::string_view line = content.substr(0, end);
      has_line_end_ = end != std::string_view::npos;
      content.remove_prefix(has_line_end_ ? end + 1 : content.size());
      if (line.ends_with('\r')) line.remove_suffix(1);
      ++line_;
      ReadLine(line);
    }
  }

 private:
  void ReadLine(std::string_view line) {
    const std::string_view text = Trimmed(line);
    if (line.size() > kLongestLine) {
      Note(
          "longer than 255 characters: NVIDIA's example plugin would cut it here and read the "
          "rest as another row");
    }
    if (text.empty()) return;
    if (text.find('\0') != std::string_view::npos) {
      Bad("a NUL byte: this is not a text file");
    } else if (text.starts_with('#')) {
      ReadComment(text);
    } else {
      ReadRow(text);
    }
  }

  void ReadComment(std::string_view text) {
    std::string problem;
    switch (ParseHeaderLine(text, &config_->header, &problem)) {
      case HeaderLine::kNotOurs:
      case HeaderLine::kGood:
        break;
      case HeaderLine::kNote:
        Note(std::move(problem));
        break;
      case HeaderLine::kBad:
        Bad(std::move(problem));
        break;
    }
  }

  void ReadRow(std::string_view text) {
    if (!has_line_end_) {
      // "...,4,32" may be the beginning of "...,4,320".
      config_->open_end = true;
      Bad("the last line has no line end: the file may be cut off; add a line end");
      return;
    }
    if (config_->rules.size() == kMostRules) {
      Bad("a file has at most " + std::to_string(kMostRules) + " rows");
      return;
    }
    Rule rule;
    std::string problem;
    if (!ParseRow(text, &rule, &problem)) {
      Bad(std::move(problem));
      return;
    }
    if (IsCollnet(rule) && rule.channels != 0) {
      // Up to 2.30, NCCL does not check a tuner's number of channels for CollNet and would use
      // channels that the communicator does not have.
      Note("column 6 (channels): not passed on for CollNet, where NCCL does not check it");
      rule.channels = 0;
    }
    if (rule.chunk_bytes != 0 && rule.chunk_bytes < kGrainBytes[rule.protocol]) {
      Note("column 11 (chunkBytes): not passed on below " +
           std::to_string(kGrainBytes[rule.protocol]) +
           " bytes, which NCCL would round down to 0 with this protocol");
      rule.chunk_bytes = 0;
    }
    rule.line = line_;
    config_->rules.push_back(rule);
  }

  void Bad(std::string text) {
    ++config_->bad_lines;
    Keep(true, std::move(text));
  }

  void Note(std::string text) {
    ++config_->notes;
    Keep(false, std::move(text));
  }

  void Keep(bool bad, std::string text) {
    if (config_->problems.size() < kMostProblems) {
      config_->problems.push_back({line_, bad, std::move(text)});
    }
  }

  TunerConfig* config_;
  uint32_t line_ = 0;
  bool has_line_end_ = true;
};

}  // namespace

TunerConfig ParseConfig(std::string_view content) {
  TunerConfig config;
  config.content_hash = ContentHash(content);
  Reader(&config).Read(content);
  return config;
}

namespace {

constexpr std::string_view kMarker = "nccltune:";
constexpr std::string_view kBlanks = " \t";

// Removes the next key=value or key="value with blanks" from `rest`. Returns false if `rest` does
// not start with a valid pair. An empty value is not valid.
bool TakePair(std::string_view* rest, std::string_view* key, std::string_view* value) {
  const size_t equals = rest->find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  *key = rest->substr(0, equals);
  if (key->find_first_of(" \t\"") != std::string_view::npos) return false;
  rest->remove_prefix(equals + 1);
  size_t end = 0;
  if (rest->starts_with('"')) {
    end = rest->find('"', 1);
    if (end == std::string_view::npos) return false;
    *value = rest->substr(1, end - 1);
    ++end;
    // Text directly after the closing quote is an error, not a new pair.
    if (end < rest->size() && kBlanks.find((*rest)[end]) == std::string_view::npos) return false;
  } else {
    end = rest->find_first_of(kBlanks);
    *value = rest->substr(0, end);
    if (value->find('"') != std::string_view::npos) return false;
    end = end == std::string_view::npos ? rest->size() : end;
  }
  rest->remove_prefix(end);
  return !value->empty();
}

// Stores the first value of a key. Sets *note if a later value differs.
template <typename T>
void Keep(std::optional<T>* kept, T value, std::string_view key, std::string* note) {
  if (!kept->has_value()) {
    *kept = std::move(value);
  } else if (**kept != value) {
    *note = std::string(key) + " is given twice with different values; the first counts";
  }
}

// Stores the value of a known key and ignores an unknown key. Returns false if the value is not
// valid for the key. Sets *note if the value deserves a warning.
bool Store(std::string_view key, std::string_view value, ConfigHeader* header, std::string* note) {
  if (key == "schema") {
    const std::optional<uint64_t> schema = ParseUnsigned(value);
    if (!schema) return false;
    Keep(&header->schema, *schema, key, note);
    if (*schema > kConfigSchema) {
      *note = "written for schema " + std::to_string(*schema) + "; read as schema " +
              std::to_string(kConfigSchema) + ", the newest that this plugin knows";
    }
  } else if (key == "nccl") {
    const std::optional<NcclVersion> version = ParseNcclVersion(value);
    if (!version) return false;
    Keep(&header->nccl, *version, key, note);
  } else if (key == "gpu") {
    Keep(&header->gpu, std::string(value), key, note);
  } else if (key == "driver") {
    Keep(&header->driver, std::string(value), key, note);
  } else if (key == "study") {
    Keep(&header->study, std::string(value), key, note);
  } else if (key == "created") {
    Keep(&header->created, std::string(value), key, note);
  } else if (key == "end" && value == "here") {
    header->has_end = true;
  } else if (key == "end") {
    Keep(&header->end, std::string(value), key, note);
  }
  return true;
}

}  // namespace

HeaderLine ParseHeaderLine(std::string_view line, ConfigHeader* header, std::string* problem) {
  while (line.starts_with('#')) line.remove_prefix(1);
  std::string_view rest = Trimmed(line);
  if (!rest.starts_with(kMarker)) return HeaderLine::kNotOurs;
  rest = Trimmed(rest.substr(kMarker.size()));
  std::string note;
  while (!rest.empty()) {
    std::string_view key;
    std::string_view value;
    const std::string_view before = rest;
    if (!TakePair(&rest, &key, &value)) {
      *problem = "header: " + Quoted(before) + " is not key=value or key=\"value\"";
      return HeaderLine::kBad;
    }
    if (!Store(key, value, header, &note)) {
      *problem =
          "header: " + Quoted(value) +
          (key == "nccl" ? " is not an NCCL version like 2.28.9" : " is not a schema number");
      return HeaderLine::kBad;
    }
    rest = Trimmed(rest);
  }
  if (note.empty()) return HeaderLine::kGood;
  *problem = "header: " + note;
  return HeaderLine::kNote;
}

namespace {

// Pauses before a file that looks torn is read again: 1 ms, doubling to this.
constexpr useconds_t kLongestPauseUs = 128'000;

constinit std::mutex mutex;

// The toolchain of the wheels runs no destructor of a static object at dlclose, but at exit, when
// its code is gone. So this one has none, and the shared object frees it by a function.
union CachedConfig {
  constexpr CachedConfig() noexcept : config() {}
  ~CachedConfig() {}  // NOLINT(modernize-use-equals-default): a defaulted one would be deleted
  std::shared_ptr<const LoadedConfig> config;
};
constinit CachedConfig cached;

__attribute__((destructor)) void FreeCached() { cached.config.reset(); }

// Returns whether another look may show more: a writer empties a file before it writes, and may
// pause within it.
bool LooksTorn(const LoadedConfig& file) {
  return file.error.empty() &&
         (file.empty || file.config.cut_off() || file.config.open_end || file.has_other_content);
}

LoadedConfig Read(const std::string& path, const std::string& expected_hash) {
  LoadedConfig file;
  file.path = path;
  std::string content;
  if (!ReadFile(path, kLargestConfigBytes, &content, &file.error)) return file;
  file.empty = content.empty();
  file.config = ParseConfig(content);
  file.has_other_content =
      !expected_hash.empty() &&
      strcasecmp(Hex64(file.config.content_hash).c_str(), expected_hash.c_str()) != 0;
  return file;
}

}  // namespace

std::shared_ptr<const LoadedConfig> LoadConfig(const std::string& path,
                                               const std::string& expected_hash) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (cached.config != nullptr && cached.config->path == path) return cached.config;
  LoadedConfig file = Read(path, expected_hash);
  for (useconds_t us = 1000; LooksTorn(file) && us <= kLongestPauseUs; us *= 2) {
    usleep(us);
    file = Read(path, expected_hash);
  }
  const TunerConfig& config = file.config;
  if (!config.rules.empty()) {
    file.hits = std::make_shared<RuleHits>(path, config.content_hash, config.rules.back().line);
  }
  cached.config = std::make_shared<const LoadedConfig>(std::move(file));
  return cached.config;
}

void ForgetConfig() {
  const std::lock_guard<std::mutex> lock(mutex);
  cached.config = nullptr;
}

}  // namespace nccltune::tuner
