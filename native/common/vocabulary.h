// SPDX-License-Identifier: Apache-2.0
// The names of NCCL's collectives, algorithms and protocols. The index of a name in its list is the
// number that NCCL uses for the collective, algorithm or protocol.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nccltune {

using Words = std::span<const std::string_view>;

Words CollectiveNames();  // indexed by abi::TunedCollective
Words AlgorithmNames();   // indexed by abi::Algorithm
Words ProtocolNames();    // indexed by abi::Protocol

// Returns the index of `word` in `words`, or nothing. The spelling must be the same.
std::optional<int> NumberOf(Words words, std::string_view word);

// Returns the word of `words` that is most similar to `word`; empty if none is similar. Case,
// blanks, '_' and '-' are ignored.
std::string_view Nearest(Words words, std::string_view word);

// Returns all words in one text: "tree ring ...".
std::string Listed(Words words);

}  // namespace nccltune
