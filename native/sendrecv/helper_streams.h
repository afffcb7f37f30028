// SPDX-License-Identifier: Apache-2.0
//
// Streams of the library for kernels and copies of Policy::kernel_waits. A kernel behind an
// incomplete copy or kernel of its stream would hold up all kernels of the GPU, so a stream is used
// again only when its work is complete.
#ifndef NCCLTUNE_SENDRECV_HELPER_STREAMS_H_
#define NCCLTUNE_SENDRECV_HELPER_STREAMS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sendrecv/driver.h"

namespace nccltune::sendrecv {

// Not thread-safe.
class HelperStreams {
 public:
  // Returns a stream without pending work. Returns null if CUDA refuses a new one.
  Stream Take(Driver& driver) {
    // The stream that was taken first is probably complete first.
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream stream = streams_[next_];
      next_ = (next_ + 1) % streams_.size();
      if (driver.IsComplete(stream)) return stream;
    }
    Stream made = driver.NewStream();
    if (made != nullptr) streams_.push_back(made);
    return made;
  }

  bool AreComplete(Driver& driver) const {
    return std::ranges::all_of(streams_, [&](Stream stream) { return driver.IsComplete(stream); });
  }

  void Delete(Driver& driver) {
    for (Stream stream : streams_) driver.DeleteStream(stream);
    streams_.clear();
    next_ = 0;
  }

  const std::vector<Stream>& all() const { return streams_; }

 private:
  std::vector<Stream> streams_;
  size_t next_ = 0;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_HELPER_STREAMS_H_
