// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_HOST_LINE_BUFFER_H_
#define NCCLTUNE_HOST_LINE_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccltune::host {

// Cuts what is read into lines. One longer than a mebibyte is passed over as a whole.
class LineBuffer {
 public:
  static constexpr size_t kLongestLine = size_t{1} << 20;

  void Add(std::string_view bytes) { pending_ += bytes; }
  // Nothing more will be added: a last line without its end counts, it may be the end of a file fed
  // by hand.
  void End() { ended_ = true; }
  bool ended() const { return ended_; }

  enum class Result { kLine, kTooLong, kEnd, kMore };
  // The next line without its end; kMore if bytes have to be added first.
  Result Next(std::string* line);

 private:
  std::string pending_;
  size_t searched_ = 0;
  bool too_long_ = false;
  bool ended_ = false;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_LINE_BUFFER_H_
