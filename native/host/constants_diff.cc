// SPDX-License-Identifier: Apache-2.0
#include "host/constants_diff.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "abi/tuner_v7.h"

namespace nccltune::host {
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
