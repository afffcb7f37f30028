// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/nccl_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench/nccl/support.h"

namespace nccltune::bench {
namespace {

// Puts a shell script named `python3` first on PATH.
class TorchNccl : public ::testing::Test {
 protected:
  TorchNccl() : folder_(std::filesystem::temp_directory_path() / Unique()) {
    std::filesystem::create_directories(folder_);
    environment_.Set("PATH", folder_.string() + ":" + std::getenv("PATH"));
  }
  ~TorchNccl() override { std::filesystem::remove_all(folder_); }

  void Python(const std::string& script) {
    const std::filesystem::path file = folder_ / "python3";
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }

  static std::string Unique() {
    return "nccltune-torch-" + std::to_string(getpid()) + "-" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  const std::filesystem::path folder_;
  Environment environment_;
};

TEST_F(TorchNccl, TakesTheMarkedLineAmongOthers) {
  Python("echo welcome; echo nccltune:/some where/libnccl.so.2; echo bye");
  EXPECT_EQ(FindTorchNccl(), "/some where/libnccl.so.2");
}

TEST_F(TorchNccl, NothingIsNoError) {
  Python("exit 1");
  EXPECT_EQ(FindTorchNccl(), "");
  Python("echo nccltune:cut");
  std::filesystem::remove(folder_ / "python3");
  environment_.Set("PATH", folder_.string());
  EXPECT_EQ(FindTorchNccl(), "");
}

// Runs the real Python program against fake packages, if a Python is installed.
TEST_F(TorchNccl, FindsTheLibraryThatBelongsToTorchWithoutImportingIt) {
  if (std::system("python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'") != 0) {
    GTEST_SKIP() << "no python3";
  }
  const std::filesystem::path site = folder_ / "site";
  std::filesystem::create_directories(site / "torch");
  std::filesystem::create_directories(site / "nvidia" / "nccl" / "lib");
  std::ofstream(site / "torch" / "__init__.py") << "raise RuntimeError('imported')\n";
  environment_.Set("PYTHONPATH", site.string());
  EXPECT_EQ(FindTorchNccl(), "") << "no library is there yet";
  std::ofstream(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2") << "";
  EXPECT_EQ(FindTorchNccl(), (site / "nvidia" / "nccl" / "lib" / "libnccl.so.2").string());
  std::filesystem::remove_all(site / "torch");
  if (std::system(
          "python3 -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"torch\"))'") !=
      0) {
    EXPECT_EQ(FindTorchNccl(), "") << "without PyTorch it is somebody else's";
  }
}

}  // namespace
}  // namespace nccltune::bench
