// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What events_double.cc shares with a test: a GPU that runs what it is given at once.
struct GpuDouble {
  int nccl_version = 22809;
  int64_t now_ns = 0;
  bool is_behind = false;  // no event is reached yet
  int capture_status = 0;  // of all streams
  int mode = 0;    // how the thread takes captures of others: 0 is cudaStreamCaptureModeGlobal
  int events = 0;  // that exist
  int most_events = -1;
  int records = 0;
  int forbidden = 0;  // calls that would have ended a capture
};
