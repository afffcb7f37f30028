// SPDX-License-Identifier: Apache-2.0
#include "tuner/config.h"

#include <utility>

#include "abi/tuner_types.h"
#include "common/content_hash.h"
#include "common/text.h"
#include "tuner/rule.h"

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

}  // namespace nccltune::tuner
