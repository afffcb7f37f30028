// SPDX-License-Identifier: Apache-2.0
// Parses one row of the configuration. NVIDIA's example plugin turns invalid cells into other rules
// (an unknown collective into allreduce, NVLS into ring, 1K into 1). This parser rejects such a
// row.
#include <array>
#include <cstddef>
#include <limits>
#include <optional>

#include "common/text.h"
#include "common/vocabulary.h"
#include "tuner/config.h"

namespace nccltune::tuner {
namespace {

constexpr size_t kFewestColumns = 8;
constexpr size_t kMostColumns = 11;

enum ColumnIndex : size_t {
  kCollectiveColumn,
  kMinBytesColumn,
  kMaxBytesColumn,
  kAlgorithmColumn,
  kProtocolColumn,
  kChannelsColumn,
  kNodesColumn,
  kRanksColumn,
  kPipeOpsColumn,
  kRegisteredColumn,
  kChunkColumn,
};

struct Column {
  std::string_view name;
  std::string_view noun;      // used in the message "'x' is not <noun>"
  std::string_view expected;  // the valid values; empty if they are a list of names
};

constexpr std::string_view kSizes = "sizes are whole bytes without a unit, 0 to 2^64-1";
constexpr std::string_view kAnyOrMore = "-1 matches any, else 1 or more";

constexpr std::array<Column, kMostColumns> kColumns = {{
    {"collective", "a collective that NCCL tunes", ""},
    {"minBytes", "a size", kSizes},
    {"maxBytes", "a size", kSizes},
    {"algorithm", "an algorithm", ""},
    {"protocol", "a protocol", ""},
    {"channels", "a number of channels", "-1 leaves it to NCCL, else 1 to 64"},
    {"nNodes", "a number of nodes", kAnyOrMore},
    {"nRanks", "a number of ranks", kAnyOrMore},
    {"numPipeOps", "a number of operations", kAnyOrMore},
    {"regBuff", "a registration", "-1 matches any, 0 not registered, 1 registered"},
    {"chunkBytes", "a chunk size", "-1 leaves it to NCCL, else 1 to 1073741824 bytes"},
}};

std::string At(ColumnIndex column) {
  return "column " + std::to_string(column + 1) + " (" + std::string(kColumns[column].name) + "): ";
}

Words NamesOf(ColumnIndex column) {
  switch (column) {
    case kCollectiveColumn:
      return CollectiveNames();
    case kAlgorithmColumn:
      return AlgorithmNames();
    case kProtocolColumn:
      return ProtocolNames();
    default:
      return {};
  }
}

std::string Expected(ColumnIndex column) {
  const Words names = NamesOf(column);
  if (names.empty()) return std::string(kColumns[column].expected);
  return "names are lower case without spaces: " + Listed(names);
}

// Returns the number of bytes without a unit: "65536" for "64K", "64KB" or "64KiB". Returns an
// empty string for other text, and for a number that does not fit into 64 bits.
std::string WithoutUnit(std::string_view cell) {
  const size_t digits = cell.find_first_not_of("0123456789");
  if (digits == std::string_view::npos) return {};
  const std::optional<uint64_t> number = ParseUnsigned(cell.substr(0, digits));
  std::string_view unit = Trimmed(cell.substr(digits));
  if (unit.ends_with('B') || unit.ends_with('b')) unit.remove_suffix(1);
  if (unit.size() == 2 && unit.ends_with('i')) unit.remove_suffix(1);
  if (!number || unit.size() != 1) return {};
  constexpr std::string_view kUnits = "kmgt";
  const size_t power = kUnits.find(LowerCase(unit.front()));
  if (power == std::string_view::npos) return {};
  const size_t shift = 10 * (power + 1);
  if (*number > (std::numeric_limits<uint64_t>::max() >> shift)) return {};
  return std::to_string(*number << shift);
}

std::string Suggestion(ColumnIndex column, std::string_view cell) {
  if (column == kMinBytesColumn || column == kMaxBytesColumn || column == kChunkColumn) {
    return WithoutUnit(cell);
  }
  return std::string(Nearest(NamesOf(column), cell));
}

std::string Wrong(ColumnIndex column, std::string_view cell) {
  if (cell.empty()) return At(column) + "empty; " + Expected(column);
  std::string text = At(column) + Quoted(cell) + " is not " + std::string(kColumns[column].noun);
  if (column == kAlgorithmColumn && (cell == "default" || cell == "-1")) {
    return text + "; for NCCL's own choice leave the row out";
  }
  const std::string suggestion = Suggestion(column, cell);
  text += suggestion.empty() ? "; " : "; did you mean '" + suggestion + "'? ";
  return text + Expected(column);
}

// Reads the cells of one row and keeps the first error.
class RowReader {
 public:
  using Cells = std::array<std::string_view, kMostColumns>;

  RowReader(const Cells& cells, std::string* problem) : cells_(cells), problem_(problem) {}

  bool ok() const { return ok_; }

  uint8_t Name(ColumnIndex column) {
    const std::optional<int> number = NumberOf(NamesOf(column), cells_[column]);
    if (!number) Refuse(column);
    return static_cast<uint8_t>(number.value_or(0));
  }

  uint64_t Bytes(ColumnIndex column) {
    const std::optional<uint64_t> bytes = ParseUnsigned(cells_[column]);
    if (!bytes) Refuse(column);
    return bytes.value_or(0);
  }

  // Returns a number from `least` to `most`, or kAny if the cell is -1. An invalid cell also gives
  // kAny, and is recorded as an error.
  int32_t Number(ColumnIndex column, uint64_t least, uint64_t most) {
    if (cells_[column] == "-1") return kAny;
    const std::optional<uint64_t> number = ParseUnsigned(cells_[column]);
    if (!number || *number < least || *number > most) {
      Refuse(column);
      return kAny;
    }
    return static_cast<int32_t>(*number);
  }

 private:
  void Refuse(ColumnIndex column) {
    if (ok_) *problem_ = Wrong(column, cells_[column]);
    ok_ = false;
  }

  const Cells& cells_;
  std::string* problem_;
  bool ok_ = true;
};

// Splits a row into cells without surrounding blanks. Returns the number of cells, including those
// that do not fit into `cells`.
size_t Split(std::string_view row, RowReader::Cells* cells) {
  size_t count = 0;
  for (bool more = true; more; ++count) {
    const size_t comma = row.find(',');
    more = comma != std::string_view::npos;
    if (count < cells->size()) (*cells)[count] = Trimmed(row.substr(0, comma));
    if (more) row.remove_prefix(comma + 1);
  }
  return count;
}

}  // namespace

bool ParseRow(std::string_view row, Rule* rule, std::string* problem) {
  constexpr uint64_t kLargestInt = std::numeric_limits<int32_t>::max();
  RowReader::Cells cells;
  const size_t count = Split(row, &cells);
  if (count < kFewestColumns || count > kMostColumns) {
    *problem = std::to_string(count) + (count == 1 ? " column" : " columns") +
               "; a row has 8 to 11: collective,minBytes,maxBytes,algorithm,protocol,channels,"
               "nNodes,nRanks[,numPipeOps[,regBuff[,chunkBytes]]]";
    return false;
  }
  RowReader read(cells, problem);
  rule->collective = read.Name(kCollectiveColumn);
  rule->min_bytes = read.Bytes(kMinBytesColumn);
  rule->max_bytes = read.Bytes(kMaxBytesColumn);
  rule->algorithm = read.Name(kAlgorithmColumn);
  rule->protocol = read.Name(kProtocolColumn);
  const int32_t channels = read.Number(kChannelsColumn, 1, kMostChannels);
  rule->channels = channels == kAny ? uint8_t{0} : static_cast<uint8_t>(channels);
  rule->nodes = read.Number(kNodesColumn, 1, kLargestInt);
  rule->ranks = read.Number(kRanksColumn, 1, kLargestInt);
  rule->pipe_ops = count > kPipeOpsColumn ? read.Number(kPipeOpsColumn, 1, kLargestInt) : kAny;
  rule->registered = static_cast<int8_t>(
      count > kRegisteredColumn ? read.Number(kRegisteredColumn, 0, 1) : int32_t{kAny});
  const int32_t chunk =
      count > kChunkColumn ? read.Number(kChunkColumn, 1, kLargestChunk) : int32_t{kAny};
  rule->chunk_bytes = chunk == kAny ? 0 : static_cast<uint32_t>(chunk);
  if (!read.ok()) return false;
  if (rule->min_bytes > rule->max_bytes) {
    *problem = At(kMaxBytesColumn) + std::string(cells[kMaxBytesColumn]) +
               " is less than minBytes " + std::string(cells[kMinBytesColumn]);
    return false;
  }
  return true;
}

}  // namespace nccltune::tuner
