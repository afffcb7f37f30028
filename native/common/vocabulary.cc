// SPDX-License-Identifier: Apache-2.0
#include "common/vocabulary.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "abi/tuner.h"
#include "common/text.h"

namespace nccltune {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array<std::string_view, abi::kNumCollectives> kCollectives = {
    "broadcast"sv, "reduce"sv, "allgather"sv, "reducescatter"sv, "allreduce"sv};
constexpr std::array<std::string_view, abi::kNumAlgorithms> kAlgorithms = {
    "tree"sv, "ring"sv, "collnet_direct"sv, "collnet_chain"sv, "nvls"sv, "nvls_tree"sv, "pat"sv};
constexpr std::array<std::string_view, abi::kNumProtocols> kProtocols = {"ll"sv, "ll128"sv,
                                                                         "simple"sv};

// Nearest finds no similar word for a longer word. The limit bounds the array in Distance.
constexpr size_t kLongestWord = 40;

// Returns the number of letters to insert, delete or replace to turn `a` into `b` (Levenshtein).
size_t Distance(std::string_view a, std::string_view b) {
  std::array<size_t, kLongestWord + 1> row{};
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

// Returns the word in lower case without '_', '-' and blanks. Users spell names differently:
// all_reduce, collnetDirect, nvls-tree.
std::string Folded(std::string_view word) {
  std::string folded;
  for (const char c : Trimmed(word)) {
    if (c != '_' && c != '-' && c != ' ') folded += LowerCase(c);
  }
  return folded;
}

}  // namespace

Words CollectiveNames() { return kCollectives; }
Words AlgorithmNames() { return kAlgorithms; }
Words ProtocolNames() { return kProtocols; }

std::optional<int> NumberOf(Words words, std::string_view word) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::string_view Nearest(Words words, std::string_view word) {
  const std::string folded = Folded(word.substr(0, 2 * kLongestWord));
  if (folded.empty() || folded.size() > kLongestWord) return {};
  std::string_view best;
  // A similar word differs in at most one letter of three, and at least one letter may differ.
  size_t best_distance = std::max<size_t>(1, folded.size() / 3) + 1;
  for (const std::string_view candidate : words) {
    const std::string folded_candidate = Folded(candidate);
    if (folded_candidate.size() > kLongestWord) continue;
    const size_t distance = Distance(folded, folded_candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string Listed(Words words) {
  std::string listed;
  for (const std::string_view word : words) {
    if (!listed.empty()) listed += ' ';
    listed += word;
  }
  return listed;
}

}  // namespace nccltune
