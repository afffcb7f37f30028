// SPDX-License-Identifier: Apache-2.0
#include "common/shared_library.h"
#include "common/cuda_api.h"
#include "testing.h"

namespace nccltune {
namespace {

int in_the_program = 0;

TEST(SharedLibrary, OpensByNameAndFindsFunctions) {
  std::string error;
  const SharedLibrary library = SharedLibrary::Open("libm.so.6", &error);
  ASSERT_TRUE(library) << error;
  auto* const cube_root = library.Find<double(double)>("cbrt");
  ASSERT_NE(cube_root, nullptr);
  EXPECT_DOUBLE_EQ(cube_root(27), 3);
  EXPECT_EQ(library.Find<double(double)>("no_such_function"), nullptr);
  EXPECT_EQ(library.Path().front(), '/');
  EXPECT_TRUE(Has(library.Path(), "libm"));
}

TEST(SharedLibrary, ReportsTheLoadersReasonForAFailure) {
  std::string error;
  const SharedLibrary library = SharedLibrary::Open("/nowhere/libno.so", &error);
  EXPECT_FALSE(library);
  EXPECT_TRUE(Has(error, "/nowhere/libno.so")) << error;
  EXPECT_EQ(library.FindAddress("anything"), nullptr);
  EXPECT_EQ(library.Path(), "");
}

TEST(SharedLibrary, FindsWhatIsLoadedAndLoadsNothing) {
  EXPECT_TRUE(SharedLibrary::Loaded("libc.so.6"));
  EXPECT_FALSE(SharedLibrary::Loaded("libnccltune-no.so"));
  const SharedLibrary holder = SharedLibrary::Holding(reinterpret_cast<const void*>(&std::abort));
  ASSERT_TRUE(holder);
  EXPECT_NE(holder.FindAddress("abort"), nullptr);
  EXPECT_FALSE(SharedLibrary::Holding(nullptr));
  EXPECT_FALSE(SharedLibrary::Holding(&in_the_program));
  EXPECT_NE(SharedLibrary::Global().FindAddress("malloc"), nullptr);
}

TEST(SharedLibrary, MovesItsHold) {
  std::string error;
  SharedLibrary first = SharedLibrary::Open("libm.so.6", &error);
  SharedLibrary second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
  first = std::move(second);
  EXPECT_TRUE(first);
  first.Keep();
  EXPECT_FALSE(first);
  EXPECT_TRUE(SharedLibrary::Loaded("libm.so.6"));
}

}  // namespace
}  // namespace nccltune

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
