// SPDX-License-Identifier: Apache-2.0
//
// NVTX ranges that profilers such as Nsight Systems show. A copy-engine message has no kernel that
// a profiler could name.
#ifndef NCCLTUNE_SENDRECV_RANGES_H_
#define NCCLTUNE_SENDRECV_RANGES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace nccltune::sendrecv {

// Opens an NVTX range in the domain "nccltune" on the calling thread, until the object is
// destroyed. Create an object only if IsActive() is true.
class ProfilerRange {
 public:
  // Returns whether a profiler is attached; false if the library was built without NVTX. Profilers
  // attach before the first call or never.
  static bool IsActive();

  explicit ProfilerRange(const std::string& text);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

  // Sets an NVTX mark for a message, which is an instant without a duration. Does nothing unless
  // IsActive() is true.
  static void Mark(const std::string& lane, uint64_t bytes, std::string_view route);
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_RANGES_H_
