// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_HOST_LINE_BUFFER_H_
#define NCCLTUNE_HOST_LINE_BUFFER_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccltune::host {

// Splits input into lines. A line longer than 1 MiB is skipped and reported as kTooLong.
class LineBuffer {
 public:
  static constexpr size_t kLongestLine = size_t{1} << 20;

  void Add(std::string_view bytes) { pending_ += bytes; }
  // Marks the end of input. A last line without a newline still counts, because files written by
  // hand may end so.
  void End() { ended_ = true; }
  bool ended() const { return ended_; }

  enum class Result { kLine, kTooLong, kEnd, kMore };
  // kLine: *line is the next line without its newline. kTooLong: the next line was skipped. kMore:
  // more bytes must be added first. kEnd: the input has ended and no line is left.
  Result Next(std::string* line);

 private:
  std::string pending_;
  size_t searched_ = 0;
  bool too_long_ = false;
  bool ended_ = false;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_LINE_BUFFER_H_
