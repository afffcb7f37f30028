// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines over private copies of standard input and output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/descriptor.h"

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

// Takes over standard input and output. Afterwards descriptor 0 reads /dev/null and descriptor 1 is
// standard error, so that a plugin's printf cannot mix with the answers.
class LineChannel {
 public:
  // After construction, ok() returns whether the descriptors could be set up.
  LineChannel();

  bool ok() const { return in_ && out_; }

  // Reads until the next line, a line that was skipped or the end of input, which is also where
  // reading fails.
  LineBuffer::Result ReadLine(std::string* line);

  // Writes a line. Returns false if writing fails, for example because the reader has closed its
  // end.
  bool WriteLine(std::string_view line);

  // Return the private descriptors, for a program that polls them with others; -1 if not open.
  int input() const { return in_.fd(); }
  int output() const { return out_.fd(); }

 private:
  Descriptor in_;
  Descriptor out_;
  LineBuffer buffer_;
};

}  // namespace nccltune::host
