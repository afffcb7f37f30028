// SPDX-License-Identifier: Apache-2.0
#include "host/model_constants.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace nccltune::host {
namespace {

// The defaults of 2.30.3 and later. Rows are algorithms in NCCL's order, or compute capabilities
// from Volta to Blackwell. Columns are the protocols LL, LL128 and Simple, or scales of one, two
// and more nodes.
constexpr abi::TunerConstantsV5 kNewest = {
    .base_latencies = {{6.8, 14, 8.4}, {6.6, 14, 8.4}, {}, {}, {}, {}, {8, 8, 8}},
    .hw_latencies =
        {
            // NVLink
            {{.6, 1.25, 4},
             {.6, 1.9, 3.4},
             {0, 0, 3.7},
             {0, 0, 2.8},
             {0, 0, 25},
             {0, 0, 25},
             {0, 0, 4}},
            // PCI
            {{1, 1.9, 4}, {1, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {}, {}, {0, 0, 4}},
            // network
            {{5, 8.5, 14},
             {2.7, 4, 14},
             {0, 0, 31},
             {0, 0, 30},
             {0, 0, 18},
             {0, 0, 20.9},
             {0, 0, 14}},
        },
    // If there are several nodes, NCCL uses the first row for Intel processors and the second row
    // for AMD processors.
    .ll_max_bws = {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}},
    .per_ch_max_ring_ll128_bws = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}},
    .per_ch_max_tree_ll128_bws = {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}},
    .per_ch_max_tree_bws = {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}},
    .per_ch_max_nvls_tree_bws = {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}},
};

void SetBlackwellRingLl128(double one, double two, double more, abi::TunerConstantsV5* constants) {
  double(&row)[abi::kNumTuningScales] = constants->per_ch_max_ring_ll128_bws[abi::kBlackwell];
  row[abi::kOneNode] = one;
  row[abi::kTwoNodes] = two;
  row[abi::kFourNodes] = more;
}

}  // namespace

abi::TunerConstantsV5 DefaultConstants(NcclVersion version) {
  abi::TunerConstantsV5 constants = kNewest;
  double& nvls_tree = constants.per_ch_max_nvls_tree_bws[abi::kBlackwell][abi::kFourNodes];
  if (version < NcclVersion{2, 30, 0}) nvls_tree = 43.8;
  if (version < NcclVersion{2, 28, 9}) {
    nvls_tree = 43.1;
    constants.hw_latencies[abi::kLinkNet][abi::kNvlsTree][abi::kSimple] = 14;
  }
  if (version < NcclVersion{2, 28, 7}) {
    SetBlackwellRingLl128(73.4, 73.4, 73.4, &constants);
  } else if (version < NcclVersion{2, 29, 0}) {
    SetBlackwellRingLl128(73.4, 34.6, 73.4, &constants);
  } else if (version < NcclVersion{2, 29, 7}) {
    SetBlackwellRingLl128(34.5, 34.6, 34.5, &constants);
  }
  return constants;
}

namespace {

struct Field {
  const char* name;  // NCCL's name
  size_t rows;       // product of all dimensions except the last
};

constexpr size_t kAlgorithms = abi::kNumAlgorithms;
constexpr size_t kHardwareRows = abi::kNumHardwareLinks * kAlgorithms;
constexpr size_t kColumns = 3;  // protocols or scales
static_assert(abi::kNumProtocols == kColumns && abi::kNumTuningScales == kColumns);

std::string ConstantName(size_t index, size_t total) {
  const size_t capabilities = total == sizeof(abi::TunerConstantsV7) / sizeof(double)
                                  ? abi::kNumComputeCapabilitiesV7
                                  : abi::kNumComputeCapabilitiesV5;
  const Field fields[] = {{"baseLatencies", kAlgorithms},
                          {"hwLatencies", kHardwareRows},
                          {"llMaxBws", capabilities},
                          {"perChMaxRingLL128Bws", capabilities},
                          {"perChMaxTreeLL128Bws", capabilities},
                          {"perChMaxTreeBws", capabilities},
                          {"perChMaxNVLSTreeBws", capabilities}};
  size_t row = index / kColumns;
  for (const Field& field : fields) {
    if (row >= field.rows) {
      row -= field.rows;
      continue;
    }
    std::string name = field.name;
    if (field.rows == kHardwareRows) {
      name += "[" + std::to_string(row / kAlgorithms) + "]";
      row %= kAlgorithms;
    }
    return name + "[" + std::to_string(row) + "][" + std::to_string(index % kColumns) + "]";
  }
  return "?";
}

}  // namespace

std::vector<double> ConstantValues(const GuardedBytes& constants) {
  std::vector<double> values(constants.size() / sizeof(double));
  if (!values.empty()) {
    std::memcpy(values.data(), constants.data(), values.size() * sizeof(double));
  }
  return values;
}

std::vector<ConstantChange> ConstantChanges(const std::vector<double>& before,
                                            const std::vector<double>& after) {
  std::vector<ConstantChange> changes;
  for (size_t i = 0; i < before.size(); ++i) {
    if (std::bit_cast<uint64_t>(before[i]) == std::bit_cast<uint64_t>(after[i])) continue;
    changes.push_back({ConstantName(i, before.size()), before[i], after[i]});
  }
  return changes;
}

}  // namespace nccltune::host
