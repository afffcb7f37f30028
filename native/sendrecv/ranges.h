// SPDX-License-Identifier: Apache-2.0
//
// What profilers that read NVTX (Nsight Systems) show of calls: a message of a copy engine has no
// kernel that they could name.
#ifndef NCCLTUNE_SENDRECV_RANGES_H_
#define NCCLTUNE_SENDRECV_RANGES_H_

#include <string>

namespace nccltune::sendrecv {

// In the domain "nccltune", on the calling thread, as long as it lives. What it enqueues in streams
// is shown below it. Only where somebody looks.
class Range {
 public:
  // A profiler is attached; they are before the first call, or never.
  static bool Seen();

  explicit Range(const std::string& words);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  // A moment in one.
  static void Mark(const std::string& words);
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_RANGES_H_
