// SPDX-License-Identifier: Apache-2.0
//
// The words for NCCL's collectives, algorithms and protocols; a word's place in its list is NCCL's
// number for it.
#ifndef NCCLTUNE_COMMON_VOCABULARY_H_
#define NCCLTUNE_COMMON_VOCABULARY_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nccltune {

using Words = std::span<const std::string_view>;

Words CollectiveNames();  // indexed by abi::Collective
Words AlgorithmNames();   // indexed by abi::Algorithm
Words ProtocolNames();    // indexed by abi::Protocol

// The number of an exact, lower-case word.
std::optional<int> NumberOf(Words words, std::string_view word);

// The word that `word` was probably meant to be, whatever its case and the blanks around it; empty
// when none is near.
std::string_view Nearest(Words words, std::string_view word);

// "tree ring ..."
std::string Listed(Words words);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_VOCABULARY_H_
