// SPDX-License-Identifier: Apache-2.0
#include "host/names.h"

#include <cstddef>

#include "common/vocabulary.h"

namespace nccltune::host {
namespace {

std::string_view NameOf(Words words, int number) {
  const auto index = static_cast<size_t>(number);
  return number >= 0 && index < words.size() ? words[index] : "?";
}

}  // namespace

std::string_view CollectiveName(int collective) { return NameOf(CollectiveNames(), collective); }
std::string_view AlgorithmName(int algorithm) { return NameOf(AlgorithmNames(), algorithm); }
std::string_view ProtocolName(int protocol) { return NameOf(ProtocolNames(), protocol); }

std::optional<int> CollectiveByName(std::string_view name) {
  return NumberOf(CollectiveNames(), name);
}

std::string CombinationName(Combination combination) {
  std::string name(AlgorithmName(combination.algorithm));
  name += '/';
  name += ProtocolName(combination.protocol);
  return name;
}

std::optional<Combination> CombinationByName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<int> algorithm = NumberOf(AlgorithmNames(), name.substr(0, slash));
  const std::optional<int> protocol = NumberOf(ProtocolNames(), name.substr(slash + 1));
  if (!algorithm || !protocol) return std::nullopt;
  return Combination{*algorithm, *protocol};
}

}  // namespace nccltune::host
