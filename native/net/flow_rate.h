// SPDX-License-Identifier: Apache-2.0
// Measures the delivery rate of a flow (one TCP connection of an NCCL connection) from its
// acknowledgements, and derives how much data the flow may have in flight. Times are arguments, so
// that tests need no clock.
#pragma once

#include <cstdint>

namespace nccltune::net {

inline constexpr uint64_t kFullChunk = 512 << 10;
inline constexpr uint64_t kFirstChunk = 128 << 10;
inline constexpr uint64_t kSmallestChunk = 8 << 10;

class FlowRate {
 public:
  // Facts about a sent frame that are kept until its acknowledgement.
  struct Mark {
    int64_t sent_ns = 0;
    uint64_t delivered = 0;    // bytes delivered when the frame was sent
    int64_t delivered_ns = 0;  // time of that count, or of this send after an idle time
    bool app_limited = false;  // nothing else was waiting to be sent
  };

  Mark Sent(int64_t now_ns, uint64_t undelivered, bool app_limited);
  // Records the acknowledgement of `bytes` bytes. `busy_ns` is the total time in which bytes of
  // this flow were in flight. If the path was idle for most of the time, or nothing else was
  // waiting to be sent, the sample is only a lower bound of the path's rate.
  void Acknowledged(int64_t now_ns, uint64_t bytes, const Mark& mark, int64_t busy_ns);

  // Returns the rate in bytes per second; 0 before the first acknowledgement.
  double rate() const { return rate_; }

  // Returns the rate for chunk sizes and limits, in bytes per second. `fastest` is the rate of the
  // connection's fastest flow. If a thread and not the path is this flow's bottleneck, the flow may
  // carry as much as the fastest flow.
  double Allowed(double fastest) const;

  // Returns the shortest recent time from sending a frame to its acknowledgement; 0 before the
  // first acknowledgement. The time includes the wait behind earlier frames.
  int64_t round_trip_ns() const { return round_trip_ns_; }

  // Sets the shortest round trip of the path without queues, as the kernel measured it.
  void SetPathRoundTrip(int64_t ns) { path_ns_ = ns; }

  // Returns the limit of undelivered bytes. A flow at the limit takes no further chunk. `fastest`
  // is the rate of the connection's fastest flow.
  uint64_t Cap(double fastest) const;

  // Returns the time at which a frame's acknowledgement is expected, if `undelivered` bytes are
  // delivered by then. Returns INT64_MAX if the rate is unknown.
  int64_t ExpectedBy(const Mark& mark, uint64_t undelivered) const;

 private:
  uint64_t delivered_ = 0;
  int64_t delivered_ns_ = 0;
  double rate_ = 0;
  double busy_ = 1;  // recent share of the time with bytes in flight
  int64_t busy_ns_ = 0;
  int64_t busy_at_ns_ = 0;
  int64_t round_trip_ns_ = 0;
  int64_t round_trip_since_ns_ = 0;
  int64_t path_ns_ = 0;
};

// Rates of a connection's flows in bytes per second; 0 if unknown.
struct Rates {
  double together = 0;  // sum over all flows
  double fastest = 0;
};

// Returns the size in bytes of the next chunk for a flow with `rate`, while `pending` bytes wait to
// be sent. A chunk takes about the same short time on every flow, so that no flow finishes late.
// The size is a multiple of `granule`, and at least `granule`.
uint64_t ChunkFor(double rate, const Rates& rates, uint64_t pending, uint64_t granule);

}  // namespace nccltune::net
