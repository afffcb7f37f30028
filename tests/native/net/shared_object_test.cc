// SPDX-License-Identifier: Apache-2.0
// The shared object as it is shipped: what it exports and what it needs.
#include "abi/net.h"
#include "program_output.h"
#include "testing.h"

namespace nccltune::net {
namespace {

TEST(SharedObject, ExportsExactlyThese) {
  if (!HaveReadelf()) GTEST_SKIP() << "no readelf (Debian: binutils)";
  EXPECT_EQ(ExportedSymbols(NET_PLUGIN),
            (std::set<std::string>{"ncclNetPlugin_v6", "ncclNetPlugin_v7", "ncclNetPlugin_v8",
                                   "ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclNetPlugin_v11",
                                   "ncclNetPlugin_v12"}));
}

#ifndef NCCLTUNE_SANITIZED  // a sanitizer's build needs the sanitizer's runtime as well
TEST(SharedObject, NeedsLibcAlone) {
  if (!HaveReadelf()) GTEST_SKIP() << "no readelf (Debian: binutils)";
  ExpectLibcAlone(NET_PLUGIN);
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

constexpr rlim_t kSoft = 300;
constexpr rlim_t kHard = 2000;

void NoLog(abi::LogLevel /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
           const char* /*format*/, ...) {}

// Returns the soft limit after init; `setting` is the variable's value.
rlim_t LimitAfterInit(const char* setting) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {.rlim_cur = kSoft, .rlim_max = kHard};
    setrlimit(RLIMIT_NOFILE, &limit);
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    unsetenv("NCCLTUNE_NET_NOFILE");
    if (setting != nullptr) setenv("NCCLTUNE_NET_NOFILE", setting, 1);
    void* const library = dlopen(NET_PLUGIN, RTLD_NOW);
    if (library == nullptr) _exit(1);
    const auto* const net = static_cast<const abi::NetV11*>(dlsym(library, "ncclNetPlugin_v11"));
    void* context = nullptr;
    abi::NetCommConfig config = {abi::kNetUndefined};
    if (net->init(&context, 0, &config, NoLog, nullptr) != abi::kSuccess) _exit(2);
    getrlimit(RLIMIT_NOFILE, &limit);
    const bool written = write(ends[1], &limit.rlim_cur, sizeof(limit.rlim_cur)) > 0;
    net->finalize(context);
    _exit(written && limit.rlim_max == kHard ? 0 : 3);
  }
  close(ends[1]);
  rlim_t limit = 0;
  EXPECT_EQ(read(ends[0], &limit, sizeof(limit)), static_cast<ssize_t>(sizeof(limit)));
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return limit;
}

TEST(DescriptorLimit, IsRaisedByInitAsFarAsTheHardLimitAllows) {
  EXPECT_EQ(LimitAfterInit(nullptr), kHard);
}

TEST(DescriptorLimit, IsRaisedToTheSetting) { EXPECT_EQ(LimitAfterInit("700"), 700U); }

TEST(DescriptorLimit, StaysIfTheSettingIsZeroOrLower) {
  EXPECT_EQ(LimitAfterInit("0"), kSoft);
  EXPECT_EQ(LimitAfterInit("200"), kSoft);
}

}  // namespace
}  // namespace nccltune::net
