// SPDX-License-Identifier: Apache-2.0
#include "net/flow_rate.h"

#include <algorithm>

namespace nccltune::net {
namespace {

constexpr double kNsPerS = 1e9;
// The shortest measured round trip is replaced after this time, because paths change.
constexpr int64_t kRoundTripWindowNs = 1'000'000'000;
// Weight of a new sample in the moving average. A flow that slows down must be detected within a
// few chunks.
constexpr double kWeight = 0.25;
// If bytes were in flight for less than this share of the time, the path is not the bottleneck.
constexpr double kBusy = 0.5;
constexpr uint64_t kSmallestTail = 256 << 10;
// Sending a chunk of this size takes long compared with its system calls and with waking a thread
// at its end.
constexpr double kGoodChunk = 256 << 10;
// Bounds of the time that a chunk takes, in seconds. The time is short, so that a request's last
// chunk ends early. The time is longer if all flows are slow, because many flows may share few
// CPUs. Chunks that shrank with the rate made such flows slower: 8 flows on one thread fell to
// chunks of 8 KiB and a third of the speed.
constexpr double kShortestChunkS = 250e-6;
constexpr double kLongestChunkS = 4e-3;
// Time in seconds until the peer's thread reads arrived data. The bytes in flight must keep the
// path busy for that long.
constexpr double kQueueS = 1e-3;

uint64_t FullChunk(double rate, double fastest) {
  if (rate <= 0) return kFirstChunk;
  const double seconds =
      std::clamp(kGoodChunk / std::max(rate, fastest), kShortestChunkS, kLongestChunkS);
  const double bytes = std::min(rate * seconds, static_cast<double>(kFullChunk));
  return std::max(static_cast<uint64_t>(bytes), kSmallestChunk);
}

}  // namespace

FlowRate::Mark FlowRate::Sent(int64_t now_ns, uint64_t undelivered, bool app_limited) {
  // After an idle time, delivery is measured from the next frame.
  if (undelivered == 0) delivered_ns_ = now_ns;
  return {now_ns, delivered_, delivered_ns_, app_limited};
}

void FlowRate::Acknowledged(int64_t now_ns, uint64_t bytes, const Mark& mark, int64_t busy_ns) {
  delivered_ += bytes;
  delivered_ns_ = now_ns;
  const int64_t trip = std::max<int64_t>(now_ns - mark.sent_ns, 1);
  const bool old = now_ns - round_trip_since_ns_ > kRoundTripWindowNs;
  if (round_trip_ns_ == 0 || trip <= round_trip_ns_ || old) {
    round_trip_ns_ = trip;
    round_trip_since_ns_ = now_ns;
  }
  if (!mark.app_limited && busy_at_ns_ != 0 && now_ns > busy_at_ns_) {
    const double share =
        static_cast<double>(busy_ns - busy_ns_) / static_cast<double>(now_ns - busy_at_ns_);
    busy_ += kWeight * (std::clamp(share, 0.0, 1.0) - busy_);
  }
  busy_ns_ = busy_ns;
  busy_at_ns_ = now_ns;
  const auto interval = static_cast<double>(std::max<int64_t>(now_ns - mark.delivered_ns, 1));
  const double sample = static_cast<double>(delivered_ - mark.delivered) * kNsPerS / interval;
  if (rate_ == 0) {
    rate_ = sample;
  } else if ((!mark.app_limited && busy_ >= kBusy) || sample > rate_) {
    // If the application or a thread was the bottleneck, a sample is only a lower bound of the
    // rate, so a lower sample is ignored.
    rate_ += kWeight * (sample - rate_);
  }
}

double FlowRate::Allowed(double fastest) const {
  return rate_ <= 0 || busy_ >= kBusy ? rate_ : std::max(rate_, fastest);
}

uint64_t FlowRate::Cap(double fastest) const {
  // Use the round trip that the kernel measured. Our own round trip includes the wait behind queued
  // bytes, so a longer queue would raise the limit further.
  const double allowed = Allowed(fastest);
  const double in_flight = allowed * (kQueueS + 2 * static_cast<double>(path_ns_) / kNsPerS);
  const double most = 64.0 * (1 << 20);
  const auto wanted = static_cast<uint64_t>(std::min(in_flight, most));
  // Allow at least two chunks: the peer reads one while the other is in flight.
  return std::max(wanted, 2 * FullChunk(allowed, fastest));
}

int64_t FlowRate::ExpectedBy(const Mark& mark, uint64_t undelivered) const {
  if (rate_ <= 0) return INT64_MAX;
  const double ns = static_cast<double>(undelivered) * kNsPerS / rate_;
  return mark.sent_ns + round_trip_ns_ + static_cast<int64_t>(std::min(ns, 60 * kNsPerS));
}

uint64_t ChunkFor(double rate, const Rates& rates, uint64_t pending, uint64_t granule) {
  uint64_t bytes = FullChunk(rate, rates.fastest);
  if (rate > 0 && rates.together > 0) {
    const auto fair = static_cast<uint64_t>(static_cast<double>(pending) * rate / rates.together);
    bytes = std::min(bytes, std::max(fair, kSmallestTail));
  }
  bytes = std::min(bytes, pending);
  return std::max(bytes / granule, uint64_t{1}) * granule;
}

}  // namespace nccltune::net
