// SPDX-License-Identifier: Apache-2.0
#include "host/line_buffer.h"

#include <utility>

namespace nccltune::host {

LineBuffer::Result LineBuffer::Next(std::string* line) {
  const size_t end = pending_.find('\n', searched_);
  if (end != std::string::npos) {
    line->assign(pending_, 0, end);
    pending_.erase(0, end + 1);
    searched_ = 0;
    return std::exchange(too_long_, false) || end > kLongestLine ? Result::kTooLong : Result::kLine;
  }
  searched_ = pending_.size();
  if (searched_ > kLongestLine) {
    too_long_ = true;
    pending_.clear();
    searched_ = 0;
  }
  if (!ended_) return Result::kMore;
  line->assign(std::exchange(pending_, {}));
  searched_ = 0;
  if (std::exchange(too_long_, false)) return Result::kTooLong;
  return line->empty() ? Result::kEnd : Result::kLine;
}

}  // namespace nccltune::host
