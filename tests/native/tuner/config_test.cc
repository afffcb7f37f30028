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
  EXPECT_TRUE(config.rules.front() == (Rule{.min_bytes = 1024,
                                            .max_bytes = 2048,
                                            .line = 1,
                                            .nodes = 4,
                                            .ranks = 32,
                                            .pipe_ops = 2,
                                            .chunk_bytes = 65536,
                                            .registered = 1,
                                            .collective = abi::kReduceScatter,
                                            .algorithm = abi::kNvlsTree,
                                            .protocol = abi::kLl128,
                                            .channels = 8}));
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

TEST(TunerConfig, LastThreeColumnsAreOptionalAndMinusOneIsAnyOrDefault) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,1,tree,ll,-1,-1,-1,3\nallreduce,0,1,tree,ll,-1,-1,-1\n"
      "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1\n");
  ASSERT_EQ(config.rules.size(), 3U);
  EXPECT_EQ(config.rules[0].pipe_ops, 3);
  for (const Rule& rule : config.rules) {
    EXPECT_EQ(rule.channels, 0);
    EXPECT_EQ(rule.nodes, kAny);
    EXPECT_EQ(rule.ranks, kAny);
    if (&rule != &config.rules[0]) {
      EXPECT_EQ(rule.pipe_ops, kAny);
    }
    EXPECT_EQ(rule.registered, kAny);
  }
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

TEST(TunerConfig, ARangeMayBeOneSizeOrHaveTheLargestNumber) {
  const TunerConfig config = ParseConfig(
      "allreduce,0,18446744073709551615,tree,ll,64,-1,-1\nallreduce,4096,4096,tree,ll,-1,-1,-1\n");
  EXPECT_EQ(config.bad_lines, 0U);
  ASSERT_EQ(config.rules.size(), 2U);
  EXPECT_EQ(config.rules[0].max_bytes, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(config.rules[0].channels, 64);
  EXPECT_EQ(config.rules[1].min_bytes, 4096U);
  EXPECT_EQ(config.rules[1].max_bytes, 4096U);
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

// Files with one problem, which leaves the other rows.
TEST(TunerConfig, AProblemIsThatOfItsLine) {
  struct Case {
    const char* text;
    uint32_t line;
    bool bad;
    size_t rules;
    const char* problem;
  };
  constexpr Case kCases[] = {
      {"allreduce,0,1,tree,ll,-1,-1,-1\nnonsense\nallreduce,2,3,tree,ll,-1,-1,-1\n", 2, true, 2,
       "1 column; "},
      // "...,4,32" may be the beginning of "...,4,320".
      {"allreduce,0,9,ring,ll,-1,8,64\nallreduce,0,9,tree,ll,-1,4,32", 2, true, 1,
       "the last line has no line end: the file may be cut off; add a line end"},
      {"allreduce,0,1,collnet_chain,simple,8,-1,-1\nallreduce,0,1,collnet_chain,simple,-1,-1,-1\n",
       1, false, 2,
       "column 6 (channels): not passed on for CollNet, where NCCL does not check it"}};
  for (const Case& c : kCases) {
    const TunerConfig config = ParseConfig(c.text);
    EXPECT_EQ(config.bad_lines, c.bad ? 1U : 0U) << c.text;
    ASSERT_EQ(config.problems.size(), 1U) << c.text;
    EXPECT_EQ(config.problems[0].line, c.line);
    EXPECT_EQ(config.problems[0].bad, c.bad);
    EXPECT_TRUE(config.problems[0].text.starts_with(c.problem)) << config.problems[0].text;
    ASSERT_EQ(config.rules.size(), c.rules);
    EXPECT_EQ(config.rules[0].channels, 0);
  }
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

TEST(ConfigHeader, ALineIsOursByItsMarker) {
  const std::pair<const char*, HeaderLine> cases[] = {
      {"# plain", HeaderLine::kNotOurs},
      {"#", HeaderLine::kNotOurs},
      {"####", HeaderLine::kNotOurs},
      {"# nccltune rocks", HeaderLine::kNotOurs},
      {"# tuned by nccltune: a=b", HeaderLine::kNotOurs},
      {"# nccltune:", HeaderLine::kGood},
      // Unknown keys are for newer readers.
      {"#nccltune:\tfuture=\"x y\" nccl=2.30", HeaderLine::kGood},
      {"# nccltune: schema=2", HeaderLine::kNote}};
  ConfigHeader header;
  std::string problem;
  for (const auto& [line, kind] : cases) {
    EXPECT_EQ(ParseHeaderLine(line, &header, &problem), kind) << line;
  }
  EXPECT_EQ(header.nccl, (NcclVersion{2, 30, 0}));
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

struct BadRow {
  std::string name;
  std::string row;
  std::string problem;
};

// A row with one bad cell. The problem names the column, and ends with what it may hold.
struct BadCell {
  const char* name;
  size_t column;  // from 1
  const char* cell;
  const char* fault;
};

constexpr BadCell kBadCells[] = {
    {"UnknownCollective", 1, "alltoall", "'alltoall' is not a collective that NCCL tunes;"},
    {"CollectiveSpelledOtherwise", 1, "all_reduce",
     "'all_reduce' is not a collective that NCCL tunes; did you mean 'allreduce'?"},
    {"UpperCaseAlgorithm", 4, "NVLS", "'NVLS' is not an algorithm; did you mean 'nvls'?"},
    {"UnknownAlgorithm", 4, "butterfly", "'butterfly' is not an algorithm;"},
    {"UnknownProtocol", 5, "ll127", "'ll127' is not a protocol; did you mean 'll128'?"},
    {"Unit", 2, "1K", "'1K' is not a size; did you mean '1024'?"},
    {"BinaryUnit", 3, "64 MiB", "'64 MiB' is not a size; did you mean '67108864'?"},
    {"UnitTooLarge", 3, "99999999999T", "'99999999999T' is not a size;"},
    {"Fraction", 3, "1.5", "'1.5' is not a size;"},
    {"NegativeSize", 2, "-1", "'-1' is not a size;"},
    {"SizeOverflow", 3, "18446744073709551616", "'18446744073709551616' is not a size;"},
    {"PlusSign", 2, "+1", "'+1' is not a size;"},
    {"BlankWithinNumber", 2, "1 0", "'1 0' is not a size;"},
    {"EmptyName", 4, "", "empty;"},
    {"EmptyNumber", 6, " ", "empty;"},
    {"EmptyLastCell", 9, "", "empty;"},
    {"ZeroChannels", 6, "0", "'0' is not a number of channels;"},
    {"TooManyChannels", 6, "65", "'65' is not a number of channels;"},
    {"NegativeChannels", 6, "-2", "'-2' is not a number of channels;"},
    {"ZeroNodes", 7, "0", "'0' is not a number of nodes;"},
    {"ZeroRanks", 8, "0", "'0' is not a number of ranks;"},
    {"RanksOverflow", 8, "2147483648", "'2147483648' is not a number of ranks;"},
    {"ZeroPipeOps", 9, "0", "'0' is not a number of operations;"},
    {"BadRegBuff", 10, "2", "'2' is not a registration;"},
    {"NoChunk", 11, "0", "'0' is not a chunk size;"},
    {"ChunkTooLarge", 11, "1073741825", "'1073741825' is not a chunk size;"},
    {"ChunkWithUnit", 11, "64K", "'64K' is not a chunk size; did you mean '65536'?"},
    {"EmptyChunk", 11, "", "empty;"},
    {"ControlCharacters", 4, "tr\x1b[31mee", "'tr\\x1b[31mee' is not an algorithm;"},
    {"LoneCarriageReturn", 8, "-1\rallreduce", "'-1\\x0dallreduce' is not a number of ranks;"},
};

std::vector<BadRow> BadRows() {
  const std::string sizes = "sizes are whole bytes without a unit, 0 to 2^64-1";
  const std::string any = "-1 matches any, else 1 or more";
  const std::string names = "names are lower case without spaces: ";
  const std::pair<const char*, std::string> columns[] = {
      {"collective", names + "broadcast reduce allgather reducescatter allreduce"},
      {"minBytes", sizes},
      {"maxBytes", sizes},
      {"algorithm", names + "tree ring collnet_direct collnet_chain nvls nvls_tree pat"},
      {"protocol", names + "ll ll128 simple"},
      {"channels", "-1 leaves it to NCCL, else 1 to 64"},
      {"nNodes", any},
      {"nRanks", any},
      {"numPipeOps", any},
      {"regBuff", "-1 matches any, 0 not registered, 1 registered"},
      {"chunkBytes", "-1 leaves it to NCCL, else 1 to 1073741824 bytes"},
  };
  const std::string count =
      "; a row has 8 to 11: collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks"
      "[,numPipeOps[,regBuff[,chunkBytes]]]";
  std::vector<BadRow> rows = {
      {"DefaultAlgorithm", "allreduce,0,1,default,ll,-1,-1,-1",
       "column 4 (algorithm): 'default' is not an algorithm; for NCCL's own choice leave the row "
       "out"},
      {"OneColumn", "allreduce", "1 column" + count},
      {"SevenColumns", "allreduce,0,1,tree,ll,-1,-1", "7 columns" + count},
      {"TwelveColumns", "allreduce,0,1,tree,ll,-1,-1,-1,-1,-1,64,9", "12 columns" + count},
      {"MinAboveMax", "allreduce,2,1,tree,ll,-1,-1,-1",
       "column 3 (maxBytes): 1 is less than minBytes 2"},
      {"TheFirstOfTwoBadColumns", "allreduce,0,1,tree,ll,0,-1,0",
       "column 6 (channels): '0' is not a number of channels; " + columns[5].second}};
  for (const BadCell& bad : kBadCells) {
    std::vector<std::string> cells = {"allreduce", "0", "1", "tree", "ll", "-1", "-1", "-1"};
    if (bad.column > cells.size()) cells.resize(bad.column, "-1");
    cells[bad.column - 1] = bad.cell;
    std::string row;
    for (const std::string& cell : cells) row += (row.empty() ? "" : ",") + cell;
    const auto& [column, may_hold] = columns[bad.column - 1];
    rows.push_back({bad.name, row,
                    "column " + std::to_string(bad.column) + " (" + column + "): " + bad.fault +
                        " " + may_hold});
  }
  return rows;
}

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

INSTANTIATE_TEST_SUITE_P(TunerConfig, BadRowTest, ::testing::ValuesIn(BadRows()),
                         [](const auto& test) { return test.param.name; });

TEST(BadRow, LongCellsAreCut) {
  Rule rule;
  std::string problem;
  EXPECT_FALSE(
      ParseRow("allreduce,0,1," + std::string(5000, 'x') + ",ll,-1,-1,-1", &rule, &problem));
  EXPECT_LT(problem.size(), 250U);
  EXPECT_TRUE(Has(problem, "x...'"));
}

}  // namespace
}  // namespace nccltune::tuner
