// SPDX-License-Identifier: Apache-2.0
// Any bytes as a configuration, through the parser, the tables and some lookups. Beyond crashes and
// sanitizer findings it checks what must hold for every input.
#include "standard.h"
#include "tuner/config.h"
#include "tuner/first_match.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {
namespace {

// The plain scan is quadratic; large inputs go without the comparison.
constexpr size_t kMostCompared = 64;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void CheckConfig(const TunerConfig& config, std::string_view content) {
  const size_t problems = config.bad_lines + config.notes;
  Require(config.problems.size() <= kMostProblems, "few problems are kept");
  Require(config.problems.size() <= problems, "no problem is kept that was not counted");
  Require(config.rules.size() <= content.size() / 15 + 1, "a row is longer than 15 characters");
  uint32_t line = 0;
  for (const Rule& rule : config.rules) {
    Require(rule.line > line, "rules are in file order");
    line = rule.line;
    Require(rule.min_bytes <= rule.max_bytes, "ranges are not empty");
    Require(rule.collective < 5 && rule.algorithm < 7 && rule.protocol < 3, "numbers are NCCL's");
    Require(rule.channels <= kMostChannels, "channels are few enough");
    Require(rule.chunk_bytes <= kLargestChunk, "chunks are small enough");
    Require(rule.chunk_bytes == 0 || rule.chunk_bytes >= kGrainBytes[rule.protocol],
            "no chunk is one that NCCL rounds to 0");
    Require(rule.nodes == kAny || rule.nodes > 0, "nodes are any or more than none");
    Require(rule.registered >= -1 && rule.registered <= 1, "registered is any, no or yes");
  }
}

void CheckDecisions(const TunerConfig& config, Scale scale) {
  const RuleSet rules(config.rules, scale, /*tells_registered=*/true);
  const RuleCounts& counts = rules.counts();
  Require(counts.total ==
              counts.applied + counts.other_scale + counts.shadowed + counts.unknown_registration,
          "every rule is accounted for");
  if (config.rules.size() > kMostCompared) return;
  uint64_t mask = config.content_hash | config.content_hash << 21U;
  for (const Rule& rule : config.rules) {
    for (const uint64_t bytes : {rule.min_bytes, rule.max_bytes, rule.max_bytes + 1}) {
      mask = mask * 6364136223846793005U + 1442695040888963407U;
      const auto usable = [mask](int a, int p) { return (mask >> (20 + 3 * a + p) & 1U) != 0; };
      const Call call = {rule.collective, bytes, rule.pipe_ops == kAny ? 1 : rule.pipe_ops,
                         static_cast<int>(mask >> 60U) % 3 - 1};
      const Rule* const expected = FirstMatch(config.rules, call, scale, usable);
      const Candidate* const found =
          rules.TableOf(call.collective)->Find(call.bytes, call.pipe_ops, call.registered, usable);
      Require((expected == nullptr) == (found == nullptr), "both find a rule or neither");
      if (expected == nullptr) continue;
      Require(rules.TableOf(call.collective)->ChunkOf(found) == expected->chunk_bytes,
              "both find the same chunk size");
      Require(found->order == expected->line, "both find the same rule");
    }
  }
}

}  // namespace
}  // namespace nccltune::tuner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nccltune::tuner;  // NOLINT(google-build-using-namespace)
  const std::string_view content(reinterpret_cast<const char*>(data), size);
  const TunerConfig config = ParseConfig(content);
  CheckConfig(config, content);
  CheckDecisions(config, {1, 8});
  CheckDecisions(config, {4, 32});
  return 0;
}
