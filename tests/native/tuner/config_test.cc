// SPDX-License-Identifier: Apache-2.0
#include "tuner/config.h"
#include "abi/tuner.h"
#include "common/content_hash.h"
#include "testing.h"

namespace nccltune::tuner {
namespace {

TEST(TunerConfig, ReadsEveryColumn) {
  const TunerConfig config =
      ParseConfig("reducescatter,1024,2048,nvls_tree,ll128,8,4,32,2,1,65536\n");
  ASSERT_EQ(config.rules.size(), 1U);
  EXPECT_EQ(config.bad_lines, 0U);
  EXPECT_TRUE(config.problems.empty());
  const Rule& rule = config.rules.front();
  EXPECT_EQ(rule.collective, abi::kReduceScatter);
  EXPECT_EQ(rule.min_bytes, 1024U);
  EXPECT_EQ(rule.max_bytes, 2048U);
  EXPECT_EQ(rule.algorithm, abi::kNvlsTree);
  EXPECT_EQ(rule.protocol, abi::kLl128);
  EXPECT_EQ(rule.channels, 8);
  EXPECT_EQ(rule.nodes, 4);
  EXPECT_EQ(rule.ranks, 32);
  EXPECT_EQ(rule.pipe_ops, 2);
  EXPECT_EQ(rule.registered, 1);
  EXPECT_EQ(rule.chunk_bytes, 65536U);
  EXPECT_EQ(rule.line, 1U);
}

TEST(TunerConfig, ChunkSizes) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,16\n"
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,1073741824\n"
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,-1\n"
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 4U);
  EXPECT_TRUE(config.problems.empty());
  EXPECT_EQ(config.rules[0].chunk_bytes, 16U);
  EXPECT_EQ(config.rules[1].chunk_bytes, kLargestChunk);
  EXPECT_EQ(config.rules[2].chunk_bytes, 0U);
  EXPECT_EQ(config.rules[3].chunk_bytes, 0U);
}

TEST(TunerConfig, ChunkSizesBelowTheGrainAreNotPassedOn) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,15\n"
      "allreduce,0,1,tree,ll128,-1,-1,-1,-1,-1,1919\n"
      "allreduce,0,1,tree,simple,-1,-1,-1,-1,-1,511\n"
      "allreduce,0,1,tree,simple,-1,-1,-1,-1,-1,512\n");
  ASSERT_EQ(config.rules.size(), 4U);
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.problems.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(config.problems[i].bad);
    EXPECT_EQ(config.problems[i].line, i + 1);
    EXPECT_EQ(config.rules[i].chunk_bytes, 0U);
  }
  EXPECT_EQ(config.problems[1].text,
            "column 11 (chunkBytes): not passed on below 1920 bytes, which NCCL would round down "
            "to 0 with this protocol");
  EXPECT_EQ(config.rules[3].chunk_bytes, 512U);
}

TEST(TunerConfig, LastThreeColumnsAreOptional) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,1,tree,ll,-1,-1,-1\n"
      "allreduce,0,1,tree,ll,-1,-1,-1,3\n");
  ASSERT_EQ(config.rules.size(), 2U);
  EXPECT_EQ(config.rules[0].pipe_ops, kAny);
  EXPECT_EQ(config.rules[0].registered, kAny);
  EXPECT_EQ(config.rules[1].pipe_ops, 3);
  EXPECT_EQ(config.rules[1].registered, kAny);
}

TEST(TunerConfig, MinusOneIsAnyOrDefault) {
  const TunerConfig config = ParseConfig("allreduce,0,1,tree,ll,-1,-1,-1,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 1U);
  const Rule& rule = config.rules.front();
  EXPECT_EQ(rule.channels, 0);
  EXPECT_EQ(rule.nodes, kAny);
  EXPECT_EQ(rule.ranks, kAny);
  EXPECT_EQ(rule.pipe_ops, kAny);
  EXPECT_EQ(rule.registered, kAny);
}

TEST(TunerConfig, KnowsAllNames) {
  const TunerConfig config = ParseConfig(
      "broadcast,0,1,tree,ll,-1,-1,-1\nreduce,0,1,ring,ll128,-1,-1,-1\n"
      "allgather,0,1,collnet_direct,simple,-1,-1,-1\n"
      "reducescatter,0,1,collnet_chain,ll,-1,-1,-1\nallreduce,0,1,nvls,ll,-1,-1,-1\n"
      "allreduce,0,1,nvls_tree,ll,-1,-1,-1\nallreduce,0,1,pat,ll,-1,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 7U);
  for (int i = 0; i < 7; ++i) {
    const Rule& rule = config.rules[static_cast<size_t>(i)];
    EXPECT_EQ(rule.collective, std::min(i, 4));
    EXPECT_EQ(rule.algorithm, i);
    EXPECT_EQ(rule.protocol, i < 3 ? i : 0);
    EXPECT_EQ(rule.line, static_cast<uint32_t>(i + 1));
  }
}

TEST(TunerConfig, LargestSizeIsTheLargestNumber) {
  const TunerConfig config = ParseConfig("allreduce,0,18446744073709551615,tree,ll,64,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 1U);
  EXPECT_EQ(config.rules.front().max_bytes, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(config.rules.front().channels, 64);
}

TEST(TunerConfig, ARangeMayBeOneSize) {
  const TunerConfig config = ParseConfig("allreduce,4096,4096,tree,ll,-1,-1,-1\n");
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.rules.size(), 1U);
  EXPECT_EQ(config.rules.front().min_bytes, 4096U);
  EXPECT_EQ(config.rules.front().max_bytes, 4096U);
}

TEST(TunerConfig, LineEndsBlanksAndMarks) {
  const TunerConfig config = ParseConfig(
      "\xEF\xBB\xBF# a comment\r\n"
      "\r\n"
      " \t \r\n"
      "  allreduce ,\t1 , 2,tree,ll , -1,-1,\t-1  \r\n"
      "   # an indented comment\r\n"
      "allreduce,3,4,ring,simple,-1,-1,-1\n"
      "# a comment without a line end");
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.rules.size(), 2U);
  EXPECT_EQ(config.rules[0].line, 4U);
  EXPECT_EQ(config.rules[0].max_bytes, 2U);
  EXPECT_EQ(config.rules[1].line, 6U);
}

TEST(TunerConfig, EmptyFilesHaveNoRules) {
  for (const char* content : {"", "\n", "\r\n\n", "# only this", "\xEF\xBB\xBF"}) {
    const TunerConfig config = ParseConfig(content);
    EXPECT_TRUE(config.rules.empty());
    EXPECT_EQ(config.bad_lines, 0U);
  }
}

TEST(TunerConfig, ABadLineLeavesTheRest) {
  const TunerConfig config =
      ParseConfig("allreduce,0,1,tree,ll,-1,-1,-1\nnonsense\nallreduce,2,3,tree,ll,-1,-1,-1\n");
  EXPECT_EQ(config.rules.size(), 2U);
  EXPECT_EQ(config.bad_lines, 1U);
  ASSERT_EQ(config.problems.size(), 1U);
  EXPECT_EQ(config.problems[0].line, 2U);
  EXPECT_TRUE(config.problems[0].bad);
}

TEST(TunerConfig, LongLinesWorkAndAreNoted) {
  const std::string row = "allreduce,0,1,tree,ll,-1,-1,-1";
  const TunerConfig fits = ParseConfig(std::string(255 - row.size(), ' ') + row + "\r\n");
  EXPECT_EQ(fits.rules.size(), 1U);
  EXPECT_EQ(fits.notes, 0U);
  const TunerConfig longer = ParseConfig(std::string(256 - row.size(), ' ') + row + "\n");
  EXPECT_EQ(longer.rules.size(), 1U);
  EXPECT_EQ(longer.bad_lines, 0U);
  ASSERT_EQ(longer.notes, 1U);
  EXPECT_EQ(longer.problems[0].text,
            "longer than 255 characters: NVIDIA's example plugin would cut it here and read the "
            "rest as another row");
}

TEST(TunerConfig, CollnetTakesNoChannels) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,1,collnet_chain,simple,8,-1,-1\nallreduce,0,1,collnet_chain,simple,-1,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 2U);
  EXPECT_EQ(config.rules[0].channels, 0);
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.problems.size(), 1U);
  EXPECT_EQ(config.problems[0].line, 1U);
  EXPECT_EQ(config.problems[0].text,
            "column 6 (channels): not passed on for CollNet, where NCCL does not check it");
}

TEST(TunerConfig, RubbishIsCountedAndOnlyTheFirstLinesAreKept) {
  std::string content;
  for (int i = 0; i < 1000; ++i) content += "rubbish\n";
  const TunerConfig config = ParseConfig(content);
  EXPECT_EQ(config.bad_lines, 1000U);
  EXPECT_EQ(config.problems.size(), kMostProblems);
}

TEST(TunerConfig, Utf16IsNamed) {
  using namespace std::string_literals;
  for (const std::string& mark : {"\xFF\xFE"s, "\xFE\xFF"s}) {
    const TunerConfig config = ParseConfig(mark + "a\0l\0l\0\n\0"s);
    EXPECT_EQ(config.bad_lines, 1U);
    ASSERT_EQ(config.problems.size(), 1U);
    EXPECT_EQ(config.problems[0].text, "the file is UTF-16; save it as UTF-8 or plain ASCII");
  }
}

TEST(TunerConfig, NulBytesAreBad) {
  using namespace std::string_literals;
  const TunerConfig config = ParseConfig("allreduce,0,1,tree,ll,-1,-1,-1\0\n# a\0b\n"s);
  EXPECT_TRUE(config.rules.empty());
  EXPECT_EQ(config.bad_lines, 2U);
  EXPECT_EQ(config.problems[0].text, "a NUL byte: this is not a text file");
}

TEST(TunerConfig, RowsBeyondTheLimitAreBad) {
  std::string content;
  const std::string row = "allreduce,0,1,tree,ll,-1,-1,-1\n";
  content.reserve(row.size() * (kMostRules + 2));
  for (size_t i = 0; i < kMostRules + 2; ++i) content += row;
  const TunerConfig config = ParseConfig(content);
  EXPECT_EQ(config.rules.size(), kMostRules);
  EXPECT_EQ(config.bad_lines, 2U);
  EXPECT_EQ(config.problems[0].text, "a file has at most 262144 rows");
}

TEST(TunerConfig, HashIsOfTheRawBytes) {
  const std::string content = "\xEF\xBB\xBF# x\r\n";
  EXPECT_EQ(ParseConfig(content).content_hash, ContentHash(content));
  EXPECT_EQ(ParseConfig("").content_hash, 0xcbf29ce484222325U);
  EXPECT_NE(ParseConfig("# x\n").content_hash, ParseConfig("# x\r\n").content_hash);
}

// Every prefix that a reader may see while the file is written.
TEST(TunerConfig, NoPartOfAFileGivesRules) {
  const std::string whole =
      "# nccltune: schema=1 end=below\n"
      "allreduce,0,4,ring,ll,-1,4,320\n"
      "allreduce,0,9,tree,ll,-1,4,32\n"
      "# nccltune: end=here\n";
  for (size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    const TunerConfig part = ParseConfig(whole.substr(0, bytes));
    EXPECT_TRUE(part.rules.empty() || part.cut_off()) << bytes;
  }
  // The line end of the last comment does not matter.
  EXPECT_FALSE(ParseConfig(whole.substr(0, whole.size() - 1)).cut_off());
  EXPECT_FALSE(ParseConfig(whole).cut_off());
  EXPECT_EQ(ParseConfig(whole).rules.size(), 2U);
  EXPECT_EQ(ParseConfig(whole).bad_lines, 0U);
  // Rows that somebody adds below count, and a file without our header has no end to look for.
  EXPECT_FALSE(ParseConfig(whole + "allreduce,0,9,ring,ll,-1,8,64\n").cut_off());
  EXPECT_FALSE(ParseConfig("allreduce,0,9,ring,ll,-1,8,64\n").cut_off());
}

// "...,4,32" may be the beginning of "...,4,320".
TEST(TunerConfig, ARowWithoutALineEndIsABadLine) {
  const TunerConfig config =
      ParseConfig("allreduce,0,9,ring,ll,-1,8,64\nallreduce,0,9,tree,ll,-1,4,32");
  EXPECT_EQ(config.rules.size(), 1U);
  EXPECT_EQ(config.bad_lines, 1U);
  ASSERT_EQ(config.problems.size(), 1U);
  EXPECT_EQ(config.problems[0].line, 2U);
  EXPECT_EQ(config.problems[0].text,
            "the last line has no line end: the file may be cut off; add a line end");
}

TEST(ConfigHeader, ReadsWhatTheWriterWrites) {
  const TunerConfig config = ParseConfig(
      "# nccltune: schema=1 nccl=2.28.9 gpu=\"NVIDIA H200\"\n"
      "# nccltune: study=\"h200x4 as 4 nodes\" created=2026-11-21\n"
      "allreduce,0,1,tree,ll,-1,-1,-1\n");
  EXPECT_EQ(config.bad_lines, 0U);
  EXPECT_EQ(config.notes, 0U);
  EXPECT_EQ(config.header.schema, 1U);
  EXPECT_EQ(config.header.nccl, (NcclVersion{2, 28, 9}));
  EXPECT_EQ(config.header.gpu, "NVIDIA H200");
  EXPECT_EQ(config.header.study, "h200x4 as 4 nodes");
  EXPECT_EQ(config.header.created, "2026-11-21");
  EXPECT_EQ(config.rules.size(), 1U);
}

TEST(ConfigHeader, OtherCommentsAreNotOurs) {
  for (const char* line :
       {"# plain", "#", "####", "# nccltune rocks", "# tuned by nccltune: a=b"}) {
    ConfigHeader header;
    std::string problem;
    EXPECT_EQ(ParseHeaderLine(line, &header, &problem), HeaderLine::kNotOurs) << line;
  }
}

TEST(ConfigHeader, UnknownKeysAreForNewerReaders) {
  ConfigHeader header;
  std::string problem;
  EXPECT_EQ(ParseHeaderLine("#nccltune:\tfuture=\"x y\" nccl=2.30", &header, &problem),
            HeaderLine::kGood);
  EXPECT_EQ(header.nccl, (NcclVersion{2, 30, 0}));
}

TEST(ConfigHeader, NothingAfterTheMarkerIsFine) {
  ConfigHeader header;
  std::string problem;
  EXPECT_EQ(ParseHeaderLine("# nccltune:", &header, &problem), HeaderLine::kGood);
}

TEST(ConfigHeader, ANewerSchemaIsNoted) {
  ConfigHeader header;
  std::string problem;
  EXPECT_EQ(ParseHeaderLine("# nccltune: schema=2", &header, &problem), HeaderLine::kNote);
  EXPECT_EQ(problem,
            "header: written for schema 2; read as schema 1, the newest that this plugin knows");
}

TEST(ConfigHeader, TheFirstValueCounts) {
  const TunerConfig config =
      ParseConfig("# nccltune: gpu=A nccl=2.28.9\n# nccltune: gpu=B nccl=2.28.9\n");
  EXPECT_EQ(config.header.gpu, "A");
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.problems.size(), 1U);
  EXPECT_EQ(config.problems[0].text,
            "header: gpu is given twice with different values; the first counts");
}

TEST(ConfigHeader, BrokenPairsAreBadLines) {
  struct Case {
    const char* line;
    const char* problem;
  };
  const Case cases[] = {
      {"# nccltune: nccl", "header: 'nccl' is not key=value or key=\"value\""},
      {"# nccltune: =x", "header: '=x' is not key=value or key=\"value\""},
      {"# nccltune: gpu=", "header: 'gpu=' is not key=value or key=\"value\""},
      {"# nccltune: gpu=\"NVIDIA H200",
       "header: 'gpu=\"NVIDIA H200' is not key=value or key=\"value\""},
      {"# nccltune: gpu=\"A\"b=c", "header: 'gpu=\"A\"b=c' is not key=value or key=\"value\""},
      {"# nccltune: gpu=A\"B", "header: 'gpu=A\"B' is not key=value or key=\"value\""},
      {"# nccltune: a b=c", "header: 'a b=c' is not key=value or key=\"value\""},
      {"# nccltune: nccl=new", "header: 'new' is not an NCCL version like 2.28.9"},
      {"# nccltune: nccl=2", "header: '2' is not an NCCL version like 2.28.9"},
      {"# nccltune: nccl=2.28.9.1", "header: '2.28.9.1' is not an NCCL version like 2.28.9"},
      {"# nccltune: nccl=2..9", "header: '2..9' is not an NCCL version like 2.28.9"},
      {"# nccltune: schema=one", "header: 'one' is not a schema number"},
  };
  for (const Case& c : cases) {
    ConfigHeader header;
    std::string problem;
    EXPECT_EQ(ParseHeaderLine(c.line, &header, &problem), HeaderLine::kBad) << c.line;
    EXPECT_EQ(problem, c.problem);
  }
}

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
