// SPDX-License-Identifier: Apache-2.0
//
// What a flow delivers, measured by its acknowledgements, and what that allows it to carry. Pure:
// times are given.
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
  // What is to be remembered of a frame until it is acknowledged.
  struct Mark {
    int64_t sent_ns = 0;
    uint64_t delivered = 0;    // when it was sent
    int64_t delivered_ns = 0;  // when that was known
    bool starved = false;      // there was nothing else to send
  };

  Mark Sent(int64_t now_ns, uint64_t undelivered, bool starved);
  // `busy_ns`: the time in all in which bytes of this flow were on their way. A path that had
  // nothing to carry most of the time is not what was slow: threads were late, and all that is
  // known is that it is at least so fast.
  void Acknowledged(int64_t now_ns, uint64_t bytes, const Mark& mark, int64_t busy_ns);

  // Bytes per second; 0 before the first acknowledgement.
  double rate() const { return rate_; }

  // What it may carry beside a flow of rate `fastest`: as much, where its path is not what keeps
  // it.
  double Allowed(double fastest) const;

  // The shortest time from sending to acknowledgement lately; 0 before the first. What was sent
  // before is in it.
  int64_t round_trip_ns() const { return round_trip_ns_; }

  // The shortest round trip of the path alone, which only the kernel sees.
  void SetPathRoundTrip(int64_t ns) { path_ns_ = ns; }

  // May be undelivered before the next chunk is taken. `fastest`: the rate of the fastest flow of
  // the connection.
  uint64_t Cap(double fastest) const;

  // When a frame should be acknowledged, at the latest, that was sent with so much before it.
  int64_t ExpectedBy(const Mark& mark, uint64_t undelivered) const;

 private:
  uint64_t delivered_ = 0;
  int64_t delivered_ns_ = 0;
  double rate_ = 0;
  double busy_ = 1;  // of the time lately, the share in which the path had bytes to carry
  int64_t busy_ns_ = 0;
  int64_t busy_told_ns_ = 0;
  int64_t round_trip_ns_ = 0;
  int64_t round_trip_since_ns_ = 0;
  int64_t path_ns_ = 0;
};

// Of the flows of a connection, bytes per second; 0 where nothing is known.
struct Rates {
  double together = 0;
  double fastest = 0;
};

// Bytes of the next chunk for a flow of `rate`, where `pending` bytes wait: what takes the same
// short time on every flow, so that none is waited for. On `granule`, at least one of it.
uint64_t ChunkFor(double rate, const Rates& rates, uint64_t pending, uint64_t granule);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_FLOW_RATE_H_
