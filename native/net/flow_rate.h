// SPDX-License-Identifier: Apache-2.0
//
// The delivery rate of a flow, measured from its acknowledgements, and how much data it may have in
// flight. Pure: times are arguments.
#ifndef NCCLTUNE_NET_FLOW_RATE_H_
#define NCCLTUNE_NET_FLOW_RATE_H_

#include <cstddef>
#include <cstdint>

namespace nccltune::net {

inline constexpr uint64_t kFullChunk = 512 << 10;
inline constexpr uint64_t kFirstChunk = 128 << 10;
inline constexpr uint64_t kSmallestChunk = 8 << 10;

class FlowRate {
 public:
  // State of a frame that is kept until its acknowledgement.
  struct Mark {
    int64_t sent_ns = 0;
    uint64_t delivered = 0;    // bytes delivered when the frame was sent
    int64_t delivered_ns = 0;  // time of that count
    bool app_limited = false;  // nothing else was waiting to be sent
  };

  Mark Sent(int64_t now_ns, uint64_t undelivered, bool app_limited);
  // Records an acknowledgement. `busy_ns` is the total time in which bytes of this flow were in
  // flight. If the path was idle most of the time, threads were the bottleneck, and the sample is
  // only a lower bound of the path's rate.
  void Acknowledged(int64_t now_ns, uint64_t bytes, const Mark& mark, int64_t busy_ns);

  // Returns bytes per second; 0 before the first acknowledgement.
  double rate() const { return rate_; }

  // Returns the rate to plan with, given the connection's `fastest` flow. A flow whose path is not
  // its bottleneck may carry as much as the fastest one.
  double Allowed(double fastest) const;

  // Returns the shortest recent time from sending to acknowledgement, including the queue before
  // it; 0 before the first acknowledgement.
  int64_t round_trip_ns() const { return round_trip_ns_; }

  // Sets the shortest round trip of the path without queues, as the kernel measured it.
  void SetPathRoundTrip(int64_t ns) { path_ns_ = ns; }

  // Returns how many bytes may be undelivered before the next chunk is taken. `fastest` is the rate
  // of the connection's fastest flow.
  uint64_t Cap(double fastest) const;

  // Returns when a frame should be acknowledged at the latest, if `undelivered` bytes had to be
  // delivered first.
  int64_t ExpectedBy(const Mark& mark, uint64_t undelivered) const;

 private:
  uint64_t delivered_ = 0;
  int64_t delivered_ns_ = 0;
  double rate_ = 0;
  double busy_ = 1;  // recent share of time in which the path had bytes to carry
  int64_t busy_ns_ = 0;
  int64_t busy_at_ns_ = 0;
  int64_t round_trip_ns_ = 0;
  int64_t round_trip_since_ns_ = 0;
  int64_t path_ns_ = 0;
};

// Rates of a connection's flows in bytes per second; 0 if unknown.
struct Rates {
  double together = 0;
  double fastest = 0;
};

// Returns the size of the next chunk for a flow of `rate` while `pending` bytes wait. A chunk takes
// the same short time on every flow, so that no flow finishes late. The size is a multiple of
// `granule`, and at least one.
uint64_t ChunkFor(double rate, const Rates& rates, uint64_t pending, uint64_t granule);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_FLOW_RATE_H_
