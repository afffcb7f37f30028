// SPDX-License-Identifier: Apache-2.0
#include "common/cuda_api.h"

#include <gtest/gtest.h>

#include <string>

#include "common/shared_library.h"

namespace nccltune::cu {
namespace {

TEST(CudaApi, NamesTheFirstFunctionThatAnOldDriverLacks) {
  std::string error;
  // Opened by path; the loader then uses it for the name libcuda.so.1.
  const SharedLibrary old = SharedLibrary::Open(OLD_CUDA, &error);
  ASSERT_TRUE(old) << error;
  const std::string begin = "the NVIDIA driver is too old: " OLD_CUDA " has no cuGetErrorName ";
  Api api;
  EXPECT_EQ(Load(kBench, &api), begin + "(needed is CUDA 11.4 or newer)");
  EXPECT_EQ(Load(kSendRecv, &api), begin + "(needed is CUDA 11.7 or newer)");
  ASSERT_NE(api.Init, nullptr);
  EXPECT_EQ(api.Init(0), 100);
  EXPECT_EQ(api.MemMap, nullptr);
  EXPECT_EQ(Load(kNobody, &api), "") << "nothing is needed";
}

}  // namespace
}  // namespace nccltune::cu
