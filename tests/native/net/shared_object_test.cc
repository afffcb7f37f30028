// SPDX-License-Identifier: Apache-2.0
//
// The shared object as it is shipped: what it exports and what it needs.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "readelf.h"

namespace nccltune::net {
namespace {

TEST(SharedObject, ExportsExactlyThese) {
  if (!HaveReadelf()) GTEST_SKIP() << "no readelf (Debian: binutils)";
  std::set<std::string> exported;
  for (const std::vector<std::string>& words : Readelf("--dyn-syms", NET_PLUGIN)) {
    // Number, value, size, type, binding, visibility, section, name.
    if (words.size() < 8 || words[6] == "UND" || words[0] == "Num:") continue;
    exported.insert(words[7]);
  }
  EXPECT_EQ(exported,
            (std::set<std::string>{"ncclNetPlugin_v6", "ncclNetPlugin_v7", "ncclNetPlugin_v8",
                                   "ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclNetPlugin_v11",
                                   "ncclNetPlugin_v12"}));
}

#ifndef NCCLTUNE_SANITIZED  // a sanitizer's build needs the sanitizer's runtime as well
TEST(SharedObject, NeedsLibcAlone) {
  if (!HaveReadelf()) GTEST_SKIP() << "no readelf (Debian: binutils)";
  // Parts of libc: the loader, and libraries that were separate before glibc 2.34.
  const std::set<std::string> allowed = {"[libc.so.6]", "[libpthread.so.0]", "[libdl.so.2]",
                                         "[ld-linux-x86-64.so.2]", "[ld-linux-aarch64.so.1]"};
  int needed = 0;
  for (const std::vector<std::string>& words : Readelf("--dynamic", NET_PLUGIN)) {
    if (words.size() < 2 || words[1] != "(NEEDED)") continue;
    ++needed;
    EXPECT_EQ(allowed.count(words.back()), 1U) << words.back();
  }
  EXPECT_GT(needed, 0);
}
#endif

TEST(SharedObject, IsMarkedToStayInTheProcess) {
  if (!HaveReadelf()) GTEST_SKIP() << "no readelf (Debian: binutils)";
  bool stays = false;
  for (const std::vector<std::string>& words : Readelf("--dynamic", NET_PLUGIN)) {
    if (words.size() < 2 || words[1] != "(FLAGS_1)") continue;
    for (const std::string& word : words) stays = stays || word == "NODELETE";
  }
  EXPECT_TRUE(stays);
}

}  // namespace
}  // namespace nccltune::net
