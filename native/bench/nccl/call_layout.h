// SPDX-License-Identifier: Apache-2.0
// Translates a step's size to element counts and buffer sizes of each collective, and computes
// which data each rank receives.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// Regions of successive calls start at multiples of this number of bytes.
inline constexpr size_t kPlaceAlignment = 512;

// A region is the memory that one call uses in the send or receive buffer of a rank.
struct CallLayout {
  size_t count = 0;  // the count argument of the NCCL function, in elements
  // The step's size, rounded down so that it divides among the ranks and the calls of a group. The
  // tuner plugin sees this size.
  size_t bytes = 0;
  size_t send_bytes = 0;
  size_t receive_bytes = 0;
};

// Returns the bytes of a buffer that holds the regions of all calls of the step's group.
size_t SpanOf(const Step& step, size_t region_bytes);

// Computes the layout of one call, which is that of every rank. Returns kUnsupported if the size
// leaves a rank without an element, or if the root is not a rank.
//
// A size that does not divide among the ranks is rounded down as nccl-tests does: to 16 bytes a
// rank, or to whole elements if 16 bytes are too much.
std::optional<StepError> LayOut(const Step& step, int ranks, CallLayout* layout);

// A part of a rank's result: `elements` elements at byte `offset`. The expected data starts at
// element `first` of the pattern (the data that a rank sends) of rank `source`, or of the reduction
// of all patterns.
struct ResultPart {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t offset = 0;  // from the start of the receive region
  size_t elements = 0;
  size_t first = 0;
};

// Returns the parts in the order of their offsets; empty for a rank that receives no result.
std::vector<ResultPart> ResultOf(const Step& step, const CallLayout& layout, int rank, int ranks);

}  // namespace nccltune::bench
