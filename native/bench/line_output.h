// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_LINE_OUTPUT_H_
#define NCCLTUNE_BENCH_LINE_OUTPUT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace nccltune::bench {

// Lines to a reader that may be slow, or go: writing never waits. The descriptor is left as it is,
// because whoever shares it would become non-blocking, too.
class LineOutput {
 public:
  explicit LineOutput(int descriptor) : descriptor_(descriptor) {}

  void Write(std::string_view line);
  // Writes what the reader takes now.
  void Flush();

  int descriptor() const { return descriptor_; }
  size_t waiting() const { return pending_.size() - written_; }
  // Why nothing more can be written, empty while it can. What waits is dropped then.
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
