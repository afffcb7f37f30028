// SPDX-License-Identifier: Apache-2.0
#include "host/names.h"

#include <array>
#include <cstddef>

namespace nccltune::host {
namespace {

constexpr std::array<std::string_view, abi::kNumCollectives> kCollectiveNames = {
    "broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
constexpr std::array<std::string_view, abi::kNumAlgorithms> kAlgorithmNames = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, abi::kNumProtocols> kProtocolNames = {"ll", "ll128",
                                                                             "simple"};

template <size_t N>
std::string_view NameOf(const std::array<std::string_view, N>& names, int number) {
  const auto index = static_cast<size_t>(number);
  return number >= 0 && index < N ? names[index] : "?";
}

template <size_t N>
std::optional<int> NumberOf(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view CollectiveName(int collective) { return NameOf(kCollectiveNames, collective); }
std::string_view AlgorithmName(int algorithm) { return NameOf(kAlgorithmNames, algorithm); }
std::string_view ProtocolName(int protocol) { return NameOf(kProtocolNames, protocol); }

std::optional<int> CollectiveByName(std::string_view name) {
  return NumberOf(kCollectiveNames, name);
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
  const std::optional<int> algorithm = NumberOf(kAlgorithmNames, name.substr(0, slash));
  const std::optional<int> protocol = NumberOf(kProtocolNames, name.substr(slash + 1));
  if (!algorithm || !protocol) return std::nullopt;
  return Combination{*algorithm, *protocol};
}

}  // namespace nccltune::host
