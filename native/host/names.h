// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives, algorithms and protocols: their numbers and their names in nccltune.
#ifndef NCCLTUNE_HOST_NAMES_H_
#define NCCLTUNE_HOST_NAMES_H_

#include <optional>
#include <string>
#include <string_view>

#include "abi/tuner_types.h"

namespace nccltune::host {

// Return names such as "allreduce", "tree", "ll128"; "?" for a number that NCCL does not have.
std::string_view CollectiveName(int collective);
std::string_view AlgorithmName(int algorithm);
std::string_view ProtocolName(int protocol);

std::optional<int> CollectiveByName(std::string_view name);

// An algorithm with a protocol, which is one entry of the cost table.
struct Combination {
  int algorithm = -1;
  int protocol = -1;

  bool known() const { return algorithm >= 0 && protocol >= 0; }
  bool operator==(const Combination&) const = default;
};

// Return a name such as "tree/ll128", and the combination of such a name; nullopt if the name is
// unknown.
std::string CombinationName(Combination combination);
std::optional<Combination> CombinationByName(std::string_view name);

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_NAMES_H_
