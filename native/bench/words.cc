// SPDX-License-Identifier: Apache-2.0
#include "bench/words.h"

#include <array>
#include <cstddef>
#include <string_view>

namespace nccltune::bench {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kCollectives = {"broadcast"sv,     "reduce"sv,    "allgather"sv,
                                     "reducescatter"sv, "allreduce"sv, "sendrecv"sv,
                                     "alltoall"sv,      "gather"sv,    "scatter"sv};
constexpr std::array kDtypes = {"int8"sv,   "uint8"sv,    "int32"sv,  "uint32"sv,
                                "int64"sv,  "uint64"sv,   "half"sv,   "float"sv,
                                "double"sv, "bfloat16"sv, "f8e4m3"sv, "f8e5m2"sv};
constexpr std::array<int, kDtypes.size()> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr std::array kRedops = {"sum"sv, "prod"sv, "max"sv, "min"sv, "avg"sv, "mulsum"sv};

static_assert(kCollectives.size() == static_cast<size_t>(Collective::kScatter) + 1);
static_assert(kDtypes.size() == static_cast<size_t>(Dtype::kF8e5m2) + 1);
static_assert(kRedops.size() == static_cast<size_t>(Redop::kMulsum) + 1);

}  // namespace

Words AllCollectiveNames() { return kCollectives; }
Words DtypeNames() { return kDtypes; }
Words RedopNames() { return kRedops; }

int SizeOf(Dtype dtype) { return kSizes[static_cast<size_t>(dtype)]; }

}  // namespace nccltune::bench
