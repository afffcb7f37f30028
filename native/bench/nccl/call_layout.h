// SPDX-License-Identifier: Apache-2.0
//
// What a step's size means for each collective: element counts, buffers, and who gets what.
#ifndef NCCLTUNE_BENCH_NCCL_CALL_LAYOUT_H_
#define NCCLTUNE_BENCH_NCCL_CALL_LAYOUT_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/step.h"

namespace nccltune::bench {

// All offsets are in bytes from the start of a rank's region of the send or the receive buffer; in
// place, both regions are one.
struct CallLayout {
  size_t count = 0;  // elements, as the NCCL function takes them
  size_t bytes = 0;  // the step's, less what does not divide: what a tuner sees
  size_t send_bytes = 0;
  size_t receive_bytes = 0;
  size_t send_offset = 0;     // in place only
  size_t receive_offset = 0;  // in place only
  size_t region_bytes() const { return send_bytes > receive_bytes ? send_bytes : receive_bytes; }
};

// For one rank; only the in-place offsets depend on it. kUnsupported, and the same on all ranks,
// for a size that leaves a rank without an element and for what has no in-place form (send/recv and
// all-to-all read what they would overwrite).
//
// A size that does not divide among the ranks is cut like nccl-tests', to 16 bytes a rank, or to
// whole elements where that leaves nothing.
std::optional<StepError> LayOut(const Step& step, int rank, int ranks, CallLayout* layout);

// A part of a rank's result: `elements` from `offset`, which are those from `first` on of the
// pattern of rank `source`, or of the reduction of all ranks' patterns.
struct ResultPart {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t offset = 0;  // from the start of the receive region
  size_t elements = 0;
  size_t first = 0;
};

// In the order of their offsets; nothing for a rank that gets no result.
std::vector<ResultPart> ResultOf(const Step& step, const CallLayout& layout, int rank, int ranks);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_CALL_LAYOUT_H_
