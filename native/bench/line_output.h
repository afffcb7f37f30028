// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_LINE_OUTPUT_H_
#define NCCLTUNE_BENCH_LINE_OUTPUT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccltune::bench {

// Writes lines to a reader that may be slow or may close the pipe; a write never blocks. The
// descriptor stays in blocking mode, because a change of the mode would affect every process that
// shares the descriptor.
class LineOutput {
 public:
  explicit LineOutput(int descriptor) : descriptor_(descriptor) {}

  void Write(std::string_view line);
  // Writes as much as the reader accepts without blocking.
  void Flush();

  int descriptor() const { return descriptor_; }
  size_t waiting() const { return pending_.size() - written_; }
  // Returns the error that made writing fail; empty while writing works. After a failure, unwritten
  // lines are dropped.
  const std::string& broken() const { return broken_; }
  void Break(std::string why);

 private:
  int descriptor_;
  std::string pending_;
  size_t written_ = 0;
  std::string broken_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_LINE_OUTPUT_H_
