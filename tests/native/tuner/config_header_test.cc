// SPDX-License-Identifier: Apache-2.0
#include "tuner/config_header.h"

#include <gtest/gtest.h>

#include <string>

#include "tuner/config.h"

namespace nccltune::tuner {
namespace {

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

}  // namespace
}  // namespace nccltune::tuner
