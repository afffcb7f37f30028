// SPDX-License-Identifier: Apache-2.0
#include "tuner/support.h"
#include "abi/tuner.h"
#include "host/plugin_log.h"
#include "standard.h"

extern "C" {
extern const nccltune::abi::TunerV2 ncclTunerPlugin_v2;
extern const nccltune::abi::TunerV3 ncclTunerPlugin_v3;
extern const nccltune::abi::TunerV4 ncclTunerPlugin_v4;
extern const nccltune::abi::TunerV5 ncclTunerPlugin_v5;
extern const nccltune::abi::TunerV6 ncclTunerPlugin_v6;
extern const nccltune::abi::TunerV7 ncclTunerPlugin_v7;
}

namespace {

std::atomic<int> version_code{0};

}  // namespace

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);

extern "C" int ncclGetVersion(int* version) {
  if (version_code == 0) return 1;
  *version = version_code;
  return 0;
}

namespace nccltune::tuner {

void SetNcclVersion(int code) { version_code = code; }

namespace {

const void* StructOf(int version) {
  const std::array<const void*, 6> structs = {&ncclTunerPlugin_v2, &ncclTunerPlugin_v3,
                                              &ncclTunerPlugin_v4, &ncclTunerPlugin_v5,
                                              &ncclTunerPlugin_v6, &ncclTunerPlugin_v7};
  return structs.at(static_cast<size_t>(version - 2));
}

}  // namespace

ScopedFile::ScopedFile(std::string_view content) {
  path_ = ::testing::TempDir() + "nccltune-tuner-XXXXXX";
  const int descriptor = mkstemp(path_.data());
  EXPECT_GE(descriptor, 0);
  close(descriptor);
  std::ofstream(path_, std::ios::binary) << content;
}

ScopedFile::~ScopedFile() { unlink(path_.c_str()); }

CostTable::CostTable() {
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = 10.0F + static_cast<float>(i);
}

bool CostTable::SameBytes(const CostTable& other) const {
  return std::memcmp(entries.data(), other.entries.data(), sizeof entries) == 0;
}

TestTuner::TestTuner(int version, Scale scale, bool with_log)
    : version_(version), interface_(host::WrapTuner(version, StructOf(version))) {
  constants_.assign(interface_->constants_size(), kConstantsPattern);
  abi::NvlDomainInfoV5 domains = {1, 1, 1};
  host::InitCall call;
  call.ranks = scale.ranks;
  call.nodes = scale.nodes;
  call.log = with_log ? host::plugin_log::Function() : nullptr;
  call.nvl_domains = &domains;
  call.constants = constants_.empty() ? nullptr : constants_.data();
  EXPECT_EQ(interface_->Init(call, &context_), abi::kSuccess);
}

TestTuner::~TestTuner() { EXPECT_EQ(interface_->Finalize(context_), abi::kSuccess); }

Answer TestTuner::Ask(const Call& call, const CostTable& table, const Unusual& unusual) const {
  Answer answer;
  answer.table = table;
  answer.channels = unusual.channels;
  host::CollInfoCall info;
  info.collective = static_cast<abi::TunedCollective>(call.collective);
  info.bytes = call.bytes;
  info.pipe_ops = call.pipe_ops;
  info.registered = call.registered == 1;
  info.table = unusual.has_table ? answer.table.passed() : nullptr;
  info.algorithms = unusual.algorithms;
  info.channels = &answer.channels;
  info.collnet_support = 1;
  info.nvls_support = 1;
  info.algorithm = &answer.algorithm;
  info.protocol = &answer.protocol;
  void* const context = unusual.has_context ? context_ : nullptr;
  EXPECT_EQ(interface_->GetCollInfo(context, info), abi::kSuccess);
  return answer;
}

size_t TestTuner::AskChunk(int collective, int algorithm, int protocol, size_t proposed) const {
  size_t chunk_bytes = proposed;
  host::ChunkCall call;
  call.collective = static_cast<abi::TunedCollective>(collective);
  call.bytes = 1U << 20U;
  call.combination = {algorithm, protocol};
  call.chunk_bytes = &chunk_bytes;
  EXPECT_EQ(interface_->GetChunkSize(context_, call), abi::kSuccess);
  return chunk_bytes;
}

Pair Chosen(const Answer& answer, int version) {
  if (version == 2) return {answer.algorithm, answer.protocol};
  Pair best;
  float least = 0.0F;
  for (int a = 0; a < abi::kNumAlgorithms; ++a) {
    for (int p = 0; p < abi::kNumProtocols; ++p) {
      const float cost = answer.table.at(a, p);
      if (cost < 0.0F || (best.algorithm >= 0 && cost >= least)) continue;
      best = {a, p};
      least = cost;
    }
  }
  return least == 0.0F ? best : Pair{};
}

std::vector<std::string> TakeLog() {
  std::vector<std::string> lines;
  for (const host::LogLine& line : host::plugin_log::Take().lines) {
    lines.push_back(host::LogLevelName(line.level) + " " + line.text);
  }
  return lines;
}

}  // namespace nccltune::tuner
