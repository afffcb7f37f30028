// SPDX-License-Identifier: Apache-2.0
#include "tuner/rule_hits.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace nccltune::tuner {

RuleHits::RuleHits(std::string_view path, uint64_t content_hash, uint32_t last_line)
    : lines_(std::min(last_line, kMostCountedLines)),
      page_(kHitsName, sizeof(HitsBlock) + (size_t{lines_} + 1) * sizeof(Word)) {
  auto* const block = new (page_.data()) HitsBlock();
  hits_ = reinterpret_cast<Word*>(page_.data() + sizeof(HitsBlock));
  for (size_t line = 0; line <= lines_; ++line) new (hits_ + line) Word(0);
  block->page_bytes = page_.bytes();
  block->hits_bytes = sizeof(HitsBlock);
  block->lines = lines_;
  block->pid = static_cast<uint64_t>(getpid());
  block->content_hash = content_hash;
  block->path.Set(path);
  uint64_t magic = 0;
  std::memcpy(&magic, kHitsMagic.data(), sizeof(magic));
  block->magic = magic;
}

}  // namespace nccltune::tuner
