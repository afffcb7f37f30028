// SPDX-License-Identifier: Apache-2.0
// Lines in and out over private copies of standard input and output.
#ifndef NCCLTUNE_HOST_LINE_CHANNEL_H_
#define NCCLTUNE_HOST_LINE_CHANNEL_H_

#include <string>
#include <string_view>

#include "host/line_buffer.h"

namespace nccltune::host {

// Takes standard input and output for itself. Descriptor 0 then reads nothing and descriptor 1 is
// standard error, so that a plugin's printf cannot break the conversation.
class LineChannel {
 public:
  // Check ok() afterwards.
  LineChannel();
  ~LineChannel();
  LineChannel(const LineChannel&) = delete;
  LineChannel& operator=(const LineChannel&) = delete;

  bool ok() const { return in_ >= 0 && out_ >= 0; }

  enum class Result { kLine, kTooLong, kEnd };
  // The next line without its end. One longer than a mebibyte is passed over as a whole.
  Result ReadLine(std::string* line);

  // False if the reader has gone.
  bool WriteLine(std::string_view line);

  // The private copies, for a program that waits for more than these two; -1 if there is none.
  int input() const { return in_; }
  int output() const { return out_; }

 private:
  int in_ = -1;
  int out_ = -1;
  LineBuffer buffer_;
};

}  // namespace nccltune::host

#endif  // NCCLTUNE_HOST_LINE_CHANNEL_H_
