// SPDX-License-Identifier: Apache-2.0
#include "tuner/rule_set.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <queue>
#include <tuple>
#include <utility>

namespace nccltune::tuner {

namespace {

bool Matches(int32_t wanted, size_t actual) {
  return wanted == kAny || static_cast<size_t>(wanted) == actual;
}

}  // namespace

RuleSet::RuleSet(const std::vector<Rule>& rules, Scale scale, bool passes_registered) {
  std::array<std::vector<Rule>, abi::kNumCollectives> applying;
  counts_.total = rules.size();
  for (const Rule& rule : rules) {
    if (!Matches(rule.nodes, scale.nodes) || !Matches(rule.ranks, scale.ranks)) {
      ++counts_.other_scale;
    } else if (rule.registered != kAny && !passes_registered) {
      ++counts_.unknown_registration;
    } else {
      applying[rule.collective].push_back(rule);
    }
  }
  for (size_t i = 0; i < applying.size(); ++i) {
    std::vector<bool> used(applying[i].size());
    tables_[i] = LookupTable(applying[i], &used);
    for (size_t rule = 0; rule < used.size(); ++rule) {
      if (!used[rule]) {
        ++counts_.shadowed;
        continue;
      }
      ++counts_.applied;
      if (applying[i][rule].channels != 0) ++counts_.with_channels;
      if (applying[i][rule].chunk_bytes != 0) ++counts_.with_chunk;
      if (applying[i][rule].algorithm == abi::kPat) ++counts_.for_pat;
      if (applying[i][rule].registered != kAny) ++counts_.on_registration;
    }
  }
}

namespace {

constexpr size_t kPairs = size_t{abi::kNumAlgorithms} * abi::kNumProtocols;

size_t PairOf(const Rule& rule) {
  return size_t{rule.algorithm} * abi::kNumProtocols + rule.protocol;
}

// Holds the rules that cover the current size of an ascending sweep over sizes, in one heap for
// each pair of algorithm and protocol. The first rule in the file is on top. A rule that no longer
// covers the size is removed only when it reaches the top. Each rule is added and removed once, so
// a sweep over n rules costs n log n.
class ActiveRules {
 public:
  explicit ActiveRules(const std::vector<Rule>& rules) : rules_(rules) {}

  void Add(uint32_t rule) { waiting_[PairOf(rules_[rule])].push(rule); }

  // Finds, for each pair, the first rule in the file that covers `bytes`. Sets *chain to the
  // indices of these rules, in file order.
  void FirstOfEachPair(uint64_t bytes, std::vector<uint32_t>* chain) {
    chain->clear();
    for (Heap& heap : waiting_) {
      while (!heap.empty() && rules_[heap.top()].max_bytes < bytes) heap.pop();
      if (!heap.empty()) chain->push_back(heap.top());
    }
    std::sort(chain->begin(), chain->end());
  }

 private:
  using Heap = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

  const std::vector<Rule>& rules_;
  std::array<Heap, kPairs> waiting_;
};

// Returns the sizes at which the set of covering rules can change: 0, each rule's first size, and
// the size after each rule's last one.
std::vector<uint64_t> Boundaries(const std::vector<Rule>& rules,
                                 const std::vector<uint32_t>& members) {
  std::vector<uint64_t> boundaries = {0};
  boundaries.reserve(2 * members.size() + 1);
  for (const uint32_t member : members) {
    const Rule& rule = rules[member];
    boundaries.push_back(rule.min_bytes);
    if (rule.max_bytes != std::numeric_limits<uint64_t>::max()) {
      boundaries.push_back(rule.max_bytes + 1);
    }
  }
  std::sort(boundaries.begin(), boundaries.end());
  boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  return boundaries;
}

}  // namespace

LookupTable::LookupTable(const std::vector<Rule>& rules, std::vector<bool>* used) {
  std::map<std::pair<int32_t, int32_t>, std::vector<uint32_t>> members;
  for (uint32_t i = 0; i < rules.size(); ++i) {
    members[{rules[i].pipe_ops, rules[i].registered}].push_back(i);
  }
  if (members.empty()) return;
  groups_.reserve(members.size());
  chains_.push_back(0);
  for (const auto& [condition, indices] : members) {
    groups_.push_back(
        {condition.first, condition.second, static_cast<uint32_t>(starts_.size()), 0});
    AddGroup(rules, indices, used);
    groups_.back().segments = static_cast<uint32_t>(starts_.size()) - groups_.back().first_segment;
  }
  chunks_.resize(chunks_.empty() ? 0 : candidates_.size());
  starts_.shrink_to_fit();
  chains_.shrink_to_fit();
  candidates_.shrink_to_fit();
}

void LookupTable::AddGroup(const std::vector<Rule>& rules, const std::vector<uint32_t>& members,
                           std::vector<bool>* used) {
  std::vector<uint32_t> by_start = members;
  std::stable_sort(by_start.begin(), by_start.end(), [&rules](uint32_t a, uint32_t b) {
    return rules[a].min_bytes < rules[b].min_bytes;
  });
  ActiveRules active(rules);
  std::vector<uint32_t> chain;
  std::vector<uint32_t> previous;
  auto next = by_start.begin();
  for (const uint64_t boundary : Boundaries(rules, members)) {
    for (; next != by_start.end() && rules[*next].min_bytes == boundary; ++next) active.Add(*next);
    active.FirstOfEachPair(boundary, &chain);
    if (boundary != 0 && chain == previous) continue;
    starts_.push_back(boundary);
    for (const uint32_t index : chain) {
      const Rule& rule = rules[index];
      candidates_.push_back({rule.line, rule.algorithm, rule.protocol, rule.channels});
      if (rule.chunk_bytes != 0) {
        chunks_.resize(candidates_.size());
        chunks_.back() = rule.chunk_bytes;
      }
      (*used)[index] = true;
    }
    chains_.push_back(static_cast<uint32_t>(candidates_.size()));
    previous.swap(chain);
  }
}

const LookupTable::Group* LookupTable::FindGroup(int pipe_ops, int registered) const {
  const auto found =
      std::lower_bound(groups_.begin(), groups_.end(), std::pair(pipe_ops, registered),
                       [](const Group& group, const std::pair<int, int>& condition) {
                         return std::tie(group.pipe_ops, group.registered) <
                                std::tie(condition.first, condition.second);
                       });
  if (found == groups_.end() || found->pipe_ops != pipe_ops || found->registered != registered) {
    return nullptr;
  }
  return &*found;
}

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
