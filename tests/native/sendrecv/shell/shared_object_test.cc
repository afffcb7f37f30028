// SPDX-License-Identifier: Apache-2.0
//
// Checks of the two shipped libraries: exported symbols, needed libraries and versions, soname.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "readelf.h"

namespace nccltune::sendrecv {
namespace {

class SharedObject : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!HaveReadelf()) {
      GTEST_SKIP() << "no readelf (Debian: binutils)";
    }
  }

  static std::set<std::string> Dynamic(const std::string& tag) {
    std::set<std::string> values;
    for (const std::vector<std::string>& words : Readelf("--dynamic", GetParam())) {
      if (words.size() < 3 || words[1] != tag) continue;
      values.insert(words.begin() + 2, words.end());
    }
    return values;
  }
};

TEST_P(SharedObject, ExportsNcclsFunctionsAndNothingElse) {
  std::set<std::string> listed;
  std::ifstream list(SYMBOL_LIST);
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with('#')) continue;
    const std::string name = line.substr(0, line.find(' '));
    listed.insert(name);
    if (!line.ends_with(" alone")) listed.insert("p" + name);
  }
  std::set<std::string> exported;
  for (const std::vector<std::string>& words : Readelf("--dyn-syms", GetParam())) {
    // Columns: number, value, size, type, binding, visibility, section, name.
    if (words.size() < 8 || words[6] == "UND" || words[0] == "Num:") continue;
    EXPECT_EQ(words[3], "FUNC") << words[7];
    exported.insert(words[7]);
  }
  EXPECT_EQ(exported, listed);
  EXPECT_EQ(exported.size(), 193U);
}

#ifndef NCCLTUNE_SANITIZED  // a sanitizer build also needs the sanitizer's runtime
TEST_P(SharedObject, NeedsLibcAlone) {
  // Parts of libc: the loader, and libraries that were separate before glibc 2.34.
  const std::set<std::string> allowed = {"[libc.so.6]", "[libpthread.so.0]", "[libdl.so.2]",
                                         "[ld-linux-x86-64.so.2]", "[ld-linux-aarch64.so.1]"};
  int needed = 0;
  for (const std::string& word : Dynamic("(NEEDED)")) {
    if (!word.starts_with('[')) continue;  // skips the words "Shared library:"
    ++needed;
    EXPECT_EQ(allowed.count(word), 1U) << word;
  }
  EXPECT_GT(needed, 0);
}
#endif

TEST_P(SharedObject, IsMarkedToStayInTheProcess) {
  EXPECT_EQ(Dynamic("(FLAGS_1)").count("NODELETE"), 1U);
}

TEST_P(SharedObject, HasNcclsNameWhereItStandsForIt) {
  const std::string path = GetParam();
  const bool as_nccl = path.ends_with("/nccltune-sendrecv/libnccl.so.2");
  EXPECT_TRUE(as_nccl || path.ends_with("/libnccltune-sendrecv.so")) << path;
  EXPECT_EQ(Dynamic("(SONAME)").count("[libnccl.so.2]"), as_nccl ? 1U : 0U);
}

INSTANTIATE_TEST_SUITE_P(Shell, SharedObject, testing::Values(SHELL, SHELL_AS_NCCL));

}  // namespace
}  // namespace nccltune::sendrecv
