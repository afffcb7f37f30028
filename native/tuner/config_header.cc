// SPDX-License-Identifier: Apache-2.0
#include "tuner/config_header.h"

#include <cstddef>

#include "common/text.h"

namespace nccltune::tuner {
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

}  // namespace nccltune::tuner
