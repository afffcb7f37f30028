// SPDX-License-Identifier: Apache-2.0
// Tests how the backend opens libraries and creates the communicator, and every error on the way.
#include "bench/nccl/nccl_library.h"
#include "bench/nccl/support.h"
#include "bench/tuner_control.h"
#include "testing.h"
#include "tuner/control.h"

namespace nccltune::bench {
namespace {

class NcclOpen : public FakeGpus {
 protected:
  // Expects an error of that kind, whose text has these words. Returns its rank.
  int ExpectRefused(OpenError::Kind kind, const std::string& words, int gpus = 2) {
    const OpenError error = TryOpen(gpus, &info_).value_or(OpenError{});
    EXPECT_EQ(error.kind, kind);
    EXPECT_TRUE(Has(error.text, words)) << error.text;
    return error.rank;
  }

  static constexpr auto kBadInput = OpenError::Kind::kBadInput;
  static constexpr auto kCannotRun = OpenError::Kind::kCannotRun;
  static constexpr auto kFailed = OpenError::Kind::kFailed;
};

TEST_F(NcclOpen, ReportsWhatItOpened) {
  Open(3);
  EXPECT_EQ(info_.backend, "nccl");
  EXPECT_EQ(info_.nccl_version, "2.28.9");
  EXPECT_EQ(info_.nccl_path, FAKE_NCCL);
  EXPECT_EQ(info_.nccl_from, "flag");
  EXPECT_EQ(info_.driver, "13.0");
  EXPECT_EQ(info_.tuner_path, TUNER_PLUGIN);
  EXPECT_EQ(info_.tuner_control, NCCLTUNE_TUNER_CONTROL_VERSION);
  EXPECT_EQ(info_.tuner_interface, 5);
  EXPECT_EQ(info_.ranks, 3);
  EXPECT_EQ(info_.nodes, 1);
  ASSERT_EQ(info_.gpus.size(), 3U);
  EXPECT_EQ(info_.gpus[2].rank, 2);
  EXPECT_EQ(info_.gpus[2].name, "GPU in software");
  EXPECT_EQ(info_.dtypes.size(), DtypeNames().size());
  EXPECT_EQ(info_.collectives.size(), AllCollectiveNames().size());
  EXPECT_FALSE(info_.chunk);
  Close();
}

TEST_F(NcclOpen, EachVersionOfNcclFromThe221On) {
  for (const auto& [code, interface] : {std::pair{"22105", 2},
                                        {"22304", 3},
                                        {"22403", 4},
                                        {"22803", 5},
                                        {"23007", 6},
                                        {"23203", 7}}) {
    environment_.Set("FAKE_NCCL_VERSION", code);
    Open(2);
    EXPECT_EQ(info_.tuner_interface, interface) << code;
    EXPECT_EQ(info_.chunk, interface >= 6) << code;
    Close();
  }
}

TEST_F(NcclOpen, EightBitRealsNeedTheGpu) {
  environment_.Set("SOFT_CUDA_CAPABILITY", "80");
  Open(2);
  EXPECT_EQ(std::count(info_.dtypes.begin(), info_.dtypes.end(), Dtype::kF8e4m3), 0);
  Step step = StepOf(Collective::kAllReduce, 4096);
  step.dtype = Dtype::kF8e5m2;
  EXPECT_EQ(backend_->Run(step).error->kind, ErrorKind::kUnsupported);
  step.collective = Collective::kAllGather;
  EXPECT_FALSE(backend_->Run(step).error);
  Close();
}

TEST_F(NcclOpen, OneRankOrTooFewGpus) {
  ExpectRefused(kBadInput, "", 1);
  ExpectRefused(kCannotRun,
                "process 0 (number 0 on its host) needs GPUs 0 to 8, and the driver shows 4", 9);
}

TEST_F(NcclOpen, ADriverThatCannotStart) {
  environment_.Set("SOFT_CUDA_INIT", "100");
  ExpectRefused(kCannotRun,
                "no GPU: the NVIDIA driver cannot be initialised: an error of the stand-in "
                "(CUDA_ERROR_NO_DEVICE)");
}

TEST_F(NcclOpen, LibrariesThatAreNotWhatTheyAreGivenAs) {
  options_.nccl_path = "/nonexistent/libnccl.so.2";
  ExpectRefused(kBadInput, "--nccl /nonexistent/libnccl.so.2 cannot be opened");
  options_.nccl_path = SOFT_CUDA;
  ExpectRefused(kBadInput, "is not NCCL: it reports no version");
  options_.nccl_path = FAKE_NCCL;
  options_.tuner_path = SOFT_CUDA;
  ExpectRefused(kBadInput, "has no control interface");
  options_.tuner_path = "/" + std::string(300, 'x');  // NCCL would cut it
  ExpectRefused(kBadInput, "");
}

TEST(TunerControl, RefusesWhatThePluginDoesNotKnow) {
  std::string error;
  EXPECT_EQ(TunerControl::Open("/no/such/plugin.so", &error), nullptr);
  EXPECT_TRUE(Has(error, "cannot be opened"));
  const auto control = TunerControl::Open(TUNER_PLUGIN, &error);
  ASSERT_NE(control, nullptr) << error;
  Choice tree = {Choice::Kind::kForced, {abi::kTree, abi::kLl}, -1, 0};
  EXPECT_TRUE(control->Apply(Collective::kAllReduce, tree));
  tree.channels = 65;
  EXPECT_FALSE(control->Apply(Collective::kAllReduce, tree));
  EXPECT_TRUE(control->Apply(Collective::kAllReduce, {Choice::Kind::kTuned, {}, -1, 0}));
  EXPECT_TRUE(control->Apply(Collective::kSendRecv, Choice()));
  EXPECT_TRUE(control->Record(true));
  EXPECT_TRUE(control->Record(false));
  EXPECT_FALSE(control->LastTable(Collective::kReduce, 1));
  EXPECT_FALSE(control->LastDecision(Collective::kSendRecv, 0));
}

TEST_F(NcclOpen, ATunerThatNcclDidNotLoad) {
  environment_.Set("FAKE_NCCL_NO_TUNER", "1");
  ExpectRefused(kFailed, std::string("NCCL did not load the tuner plugin ") + TUNER_PLUGIN);
}

TEST_F(NcclOpen, ATunerThatNcclDoesNotAsk) {
  environment_.Set("FAKE_NCCL_FORGETS_TUNER", "1");
  ExpectRefused(kFailed, std::string("NCCL loaded the tuner plugin ") + TUNER_PLUGIN +
                             " but does not ask it about an all-reduce");
}

TEST_F(NcclOpen, ACommunicatorThatCannotBeMade) {
  environment_.Set("SOFT_NCCL_INIT_FAILS", "1");
  EXPECT_EQ(ExpectRefused(kFailed,
                          "NCCL failed to make the communicator: unhandled system error: "
                          "SOFT_NCCL_INIT_FAILS is set"),
            0);
}

TEST_F(NcclOpen, ARunThatEndsMeanwhile) {
  exchange_.ending = true;
  ExpectRefused(kFailed, "the run is ending");
}

TEST_F(NcclOpen, AStuckStartEndsAtItsLimit) {
  environment_.Set("FAKE_NCCL_HANG", "1:4");
  options_.start_limit = std::chrono::seconds(3);
  ExpectRefused(kFailed, "the first all-reduce is stuck: rank 0 was not done after 3 s");
}

TEST_F(NcclOpen, AbortEndsAStuckStart) {
  // The first all-reduce, of 4 bytes, hangs.
  environment_.Set("FAKE_NCCL_HANG", "1:4");
  backend_ = MakeNcclBackend(options_);
  std::thread aborter([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    backend_->Abort();
  });
  World world;
  world.gpus_per_process = 2;
  const auto error = backend_->Open(world, &exchange_, &info_);
  aborter.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->text, "the run is ending");
}

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
  ScopedVariables environment_;
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
