// SPDX-License-Identifier: Apache-2.0
//
// Every kind of bad row, with its message.
#include <gtest/gtest.h>

#include <string>

#include "tuner/config.h"

namespace nccltune::tuner {
namespace {

constexpr const char* kCollectives =
    "names are lower case without spaces: broadcast reduce allgather reducescatter allreduce";
constexpr const char* kAlgorithms =
    "names are lower case without spaces: tree ring collnet_direct collnet_chain nvls nvls_tree "
    "pat";
constexpr const char* kProtocols = "names are lower case without spaces: ll ll128 simple";
constexpr const char* kSizes = "sizes are whole bytes without a unit, 0 to 2^64-1";
constexpr const char* kChannels = "-1 leaves it to NCCL, else 1 to 64";
constexpr const char* kAnyOrMore = "-1 matches any, else 1 or more";
constexpr const char* kChunks = "-1 leaves it to NCCL, else 1 to 1073741824 bytes";
constexpr const char* kColumns =
    "a row has 8 to 11: collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks"
    "[,numPipeOps[,regBuff[,chunkBytes]]]";

struct BadRow {
  const char* name;
  const char* row;
  std::string problem;
};

const BadRow kBadRows[] = {
    {"UnknownCollective", "alltoall,0,1,tree,ll,-1,-1,-1",
     "column 1 (collective): 'alltoall' is not a collective that NCCL tunes; " +
         std::string(kCollectives)},
    {"CollectiveSpelledOtherwise", "all_reduce,0,1,tree,ll,-1,-1,-1",
     "column 1 (collective): 'all_reduce' is not a collective that NCCL tunes; did you mean "
     "'allreduce'? " +
         std::string(kCollectives)},
    {"UpperCaseAlgorithm", "allreduce,0,1,NVLS,ll,-1,-1,-1",
     "column 4 (algorithm): 'NVLS' is not an algorithm; did you mean 'nvls'? " +
         std::string(kAlgorithms)},
    {"UnknownAlgorithm", "allreduce,0,1,butterfly,ll,-1,-1,-1",
     "column 4 (algorithm): 'butterfly' is not an algorithm; " + std::string(kAlgorithms)},
    {"DefaultAlgorithm", "allreduce,0,1,default,ll,-1,-1,-1",
     "column 4 (algorithm): 'default' is not an algorithm; for NCCL's own choice leave the row "
     "out"},
    {"UnknownProtocol", "allreduce,0,1,tree,ll127,-1,-1,-1",
     "column 5 (protocol): 'll127' is not a protocol; did you mean 'll128'? " +
         std::string(kProtocols)},
    {"Unit", "allreduce,1K,1048576,tree,ll,-1,-1,-1",
     "column 2 (minBytes): '1K' is not a size; did you mean '1024'? " + std::string(kSizes)},
    {"BinaryUnit", "allreduce,0,64 MiB,tree,ll,-1,-1,-1",
     "column 3 (maxBytes): '64 MiB' is not a size; did you mean '67108864'? " +
         std::string(kSizes)},
    {"UnitTooLarge", "allreduce,0,99999999999T,tree,ll,-1,-1,-1",
     "column 3 (maxBytes): '99999999999T' is not a size; " + std::string(kSizes)},
    {"Fraction", "allreduce,0,1.5,tree,ll,-1,-1,-1",
     "column 3 (maxBytes): '1.5' is not a size; " + std::string(kSizes)},
    {"NegativeSize", "allreduce,-1,1,tree,ll,-1,-1,-1",
     "column 2 (minBytes): '-1' is not a size; " + std::string(kSizes)},
    {"SizeOverflow", "allreduce,0,18446744073709551616,tree,ll,-1,-1,-1",
     "column 3 (maxBytes): '18446744073709551616' is not a size; " + std::string(kSizes)},
    {"PlusSign", "allreduce,+1,2,tree,ll,-1,-1,-1",
     "column 2 (minBytes): '+1' is not a size; " + std::string(kSizes)},
    {"BlankWithinNumber", "allreduce,1 0,20,tree,ll,-1,-1,-1",
     "column 2 (minBytes): '1 0' is not a size; " + std::string(kSizes)},
    {"EmptyName", "allreduce,0,1,,ll,-1,-1,-1",
     "column 4 (algorithm): empty; " + std::string(kAlgorithms)},
    {"EmptyNumber", "allreduce,0,1,tree,ll, ,-1,-1",
     "column 6 (channels): empty; " + std::string(kChannels)},
    {"EmptyLastCell", "allreduce,0,1,tree,ll,-1,-1,-1,",
     "column 9 (numPipeOps): empty; " + std::string(kAnyOrMore)},
    {"OneColumn", "allreduce", "1 column; " + std::string(kColumns)},
    {"SevenColumns", "allreduce,0,1,tree,ll,-1,-1", "7 columns; " + std::string(kColumns)},
    {"TwelveColumns", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,64,9",
     "12 columns; " + std::string(kColumns)},
    {"MinAboveMax", "allreduce,2,1,tree,ll,-1,-1,-1",
     "column 3 (maxBytes): 1 is less than minBytes 2"},
    {"ZeroChannels", "allreduce,0,1,tree,ll,0,-1,-1",
     "column 6 (channels): '0' is not a number of channels; " + std::string(kChannels)},
    {"TooManyChannels", "allreduce,0,1,tree,ll,65,-1,-1",
     "column 6 (channels): '65' is not a number of channels; " + std::string(kChannels)},
    {"NegativeChannels", "allreduce,0,1,tree,ll,-2,-1,-1",
     "column 6 (channels): '-2' is not a number of channels; " + std::string(kChannels)},
    {"ZeroNodes", "allreduce,0,1,tree,ll,-1,0,-1",
     "column 7 (nNodes): '0' is not a number of nodes; " + std::string(kAnyOrMore)},
    {"ZeroRanks", "allreduce,0,1,tree,ll,-1,-1,0",
     "column 8 (nRanks): '0' is not a number of ranks; " + std::string(kAnyOrMore)},
    {"RanksOverflow", "allreduce,0,1,tree,ll,-1,-1,2147483648",
     "column 8 (nRanks): '2147483648' is not a number of ranks; " + std::string(kAnyOrMore)},
    {"ZeroPipeOps", "allreduce,0,1,tree,ll,-1,-1,-1,0",
     "column 9 (numPipeOps): '0' is not a number of operations; " + std::string(kAnyOrMore)},
    {"BadRegBuff", "allreduce,0,1,tree,ll,-1,-1,-1,-1,2",
     "column 10 (regBuff): '2' is not a registration; -1 matches any, 0 not registered, 1 "
     "registered"},
    {"NoChunk", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,0",
     "column 11 (chunkBytes): '0' is not a chunk size; " + std::string(kChunks)},
    {"ChunkTooLarge", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,1073741825",
     "column 11 (chunkBytes): '1073741825' is not a chunk size; " + std::string(kChunks)},
    {"ChunkWithUnit", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,64K",
     "column 11 (chunkBytes): '64K' is not a chunk size; did you mean '65536'? " +
         std::string(kChunks)},
    {"EmptyChunk", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,",
     "column 11 (chunkBytes): empty; " + std::string(kChunks)},
    {"ControlCharacters", "allreduce,0,1,tr\x1b[31mee,ll,-1,-1,-1",
     "column 4 (algorithm): 'tr\\x1b[31mee' is not an algorithm; " + std::string(kAlgorithms)},
    {"TheFirstOfTwoBadColumns", "allreduce,0,1,tree,ll,0,-1,0",
     "column 6 (channels): '0' is not a number of channels; " + std::string(kChannels)},
    {"LoneCarriageReturn", "allreduce,0,1,tree,ll,-1,-1,-1\rallreduce",
     "column 8 (nRanks): '-1\\x0dallreduce' is not a number of ranks; " + std::string(kAnyOrMore)},
};

class BadRowTest : public ::testing::TestWithParam<BadRow> {};

TEST_P(BadRowTest, IsRefusedInTheseWords) {
  const TunerConfig config = ParseConfig(std::string("# first line\n") + GetParam().row + "\n");
  EXPECT_TRUE(config.rules.empty());
  EXPECT_EQ(config.bad_lines, 1U);
  ASSERT_EQ(config.problems.size(), 1U);
  EXPECT_TRUE(config.problems[0].bad);
  EXPECT_EQ(config.problems[0].line, 2U);
  EXPECT_EQ(config.problems[0].text, GetParam().problem);
}

INSTANTIATE_TEST_SUITE_P(TunerConfig, BadRowTest, ::testing::ValuesIn(kBadRows),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(BadRow, LongCellsAreCut) {
  Rule rule;
  std::string problem;
  EXPECT_FALSE(
      ParseRow("allreduce,0,1," + std::string(5000, 'x') + ",ll,-1,-1,-1", &rule, &problem));
  EXPECT_LT(problem.size(), 250U);
  EXPECT_NE(problem.find("x...'"), std::string::npos);
}

}  // namespace
}  // namespace nccltune::tuner
