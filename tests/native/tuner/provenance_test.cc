// SPDX-License-Identifier: Apache-2.0
#include "tuner/provenance.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tuner/nccl_double.h"

namespace nccltune::tuner {
namespace {

using Reasons = std::vector<std::string>;

ConfigHeader Header(std::optional<NcclVersion> nccl, std::optional<std::string> gpu) {
  ConfigHeader header;
  header.nccl = nccl;
  header.gpu = std::move(gpu);
  return header;
}

TEST(Provenance, NamesWhatIsOtherwise) {
  const RunningPlatform here = {NcclVersion{2, 28, 9}, "NVIDIA H200"};
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 28, 9}, "NVIDIA H200"), here), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), here), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 30, 0}, "NVIDIA H100"), here),
            (Reasons{"NCCL 2.30.0 (this is 2.28.9)", "'NVIDIA H100' (this is 'NVIDIA H200')"}));
  EXPECT_EQ(StaleReasons(Header(NcclVersion{3, 28, 9}, {}), here),
            Reasons{"NCCL 3.28.9 (this is 2.28.9)"});
}

TEST(Provenance, WhatIsUnknownIsNotCompared) {
  const RunningPlatform here = {NcclVersion{2, 28, 9}, "NVIDIA H200"};
  EXPECT_EQ(StaleReasons(Header({}, {}), here), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 20, 1}, "A"), {}), Reasons{});
}

TEST(Provenance, MeasuredHereNeedsBothToBeKnownAndEqual) {
  const RunningPlatform here = {NcclVersion{2, 28, 9}, "NVIDIA H200"};
  EXPECT_TRUE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), here));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, {}), here));
  EXPECT_FALSE(MeasuredHere(Header({}, "NVIDIA H200"), here));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H100"), here));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), {here.nccl, {}}));
}

// A library that stays loaded until the end of the scope.
class ScopedLibrary {
 public:
  explicit ScopedLibrary(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~ScopedLibrary() { dlclose(handle_); }
  ScopedLibrary(const ScopedLibrary&) = delete;
  ScopedLibrary& operator=(const ScopedLibrary&) = delete;

  template <typename Function>
  Function* Find(const char* symbol) const {
    return reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

 private:
  void* handle_;
};

TEST(Provenance, TheGpuIsThatOfTheCurrentContext) {
  EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // libcuda is not loaded
  {
    const ScopedLibrary cuda(CUDA_DOUBLE);
    auto* const set_device = cuda.Find<void(int)>("set_current_device");
    ASSERT_NE(set_device, nullptr);
    set_device(-1);
    EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // no context
    set_device(3);
    EXPECT_EQ(FindRunning(nullptr).gpu, "Double 3");
  }
  EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // the query must not keep it loaded
}

TEST(Provenance, TheNcclIsTheOneThatHandedOverTheLogger) {
  SetNcclVersion(22809);  // a global symbol of the program
  const ScopedLibrary nccl(NCCL_LIBRARY_DOUBLE);
  auto* const logger =
      nccl.Find<void(abi::LogLevel, unsigned long, const char*, int, const char*, ...)>(
          "nccl_double_logger");
  ASSERT_NE(logger, nullptr);
  EXPECT_EQ(FindRunning(logger).nccl, (NcclVersion{2, 21, 5}));
  EXPECT_EQ(FindRunning(nullptr).nccl, (NcclVersion{2, 28, 9}));
  SetNcclVersion(0);
  EXPECT_EQ(FindRunning(nullptr).nccl, std::nullopt);
}

}  // namespace
}  // namespace nccltune::tuner
