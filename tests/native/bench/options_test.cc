// SPDX-License-Identifier: Apache-2.0
#include "bench/options.h"
#include "testing.h"

namespace nccltune::bench {
namespace {

using Arguments = std::vector<std::string_view>;

std::string ErrorOf(const Arguments& arguments) {
  BenchOptions options;
  std::string error;
  EXPECT_FALSE(ParseOptions(arguments, &options, &error));
  return error;
}

TEST(BenchOptions, NoneAreNeeded) {
  BenchOptions options;
  std::string error;
  ASSERT_TRUE(ParseOptions({}, &options, &error)) << error;
  EXPECT_FALSE(options.world.rank);
  EXPECT_EQ(options.world.gpus_per_process, 1);
  EXPECT_EQ(options.start_limit, std::chrono::seconds(120));
}

TEST(BenchOptions, AllAreRead) {
  BenchOptions options;
  std::string error;
  ASSERT_TRUE(
      ParseOptions({"--rank", "1", "--size=4", "--local-rank", "0", "--gpus-per-process", "2",
                    "--launcher", "none", "--emulate-nodes", "2", "--rendezvous", "[::1]:29500",
                    "--start-timeout", "1.5", "--tuner", "/t.so", "--nccl", "/l.so"},
                   &options, &error))
      << error;
  EXPECT_EQ(options.world.rank, 1);
  EXPECT_EQ(options.world.size, 4);
  EXPECT_EQ(options.world.local_rank, 0);
  EXPECT_EQ(options.world.gpus_per_process, 2);
  EXPECT_EQ(options.world.launcher, "none");
  EXPECT_EQ(options.world.emulate_nodes, 2);
  EXPECT_EQ(options.rendezvous, (Endpoint{"::1", 29500}));
  EXPECT_EQ(options.start_limit, std::chrono::milliseconds(1500));
  EXPECT_EQ(options.tuner, "/t.so");
  EXPECT_EQ(options.nccl, "/l.so");
  ASSERT_TRUE(ParseOptions({"--version"}, &options, &error));
  EXPECT_FALSE(options.rendezvous) << "nothing is left of the call before";
}

TEST(BenchOptions, InvalidInputIsReported) {
  const std::pair<Arguments, std::string> cases[] = {
      {{"--rnak", "1"}, "'--rnak' is not an option"},
      {{"--tunr", "s"}, "'--tunr' is not an option; did you mean '--tuner'?"},
      {{"--rank"}, "--rank lacks its value"},
      {{"study"}, "'study' is not an option"},
      {{"--rank", "x"}, "--rank: 'x' is no number from 0"},
      {{"--size", "0"}, "--size: '0' is no number from 1"},
      {{"--gpus-per-process=65"}, "'65' is no number from 1 to 64"},
      {{"--launcher", "openmp"}, "did you mean 'openmpi'?"},
      {{"--rendezvous", "host"}, "'host' is not of the form HOST:PORT"},
      {{"--start-timeout", "-1"}, "'-1' is no number from 0"},
      {{"--start-timeout", "nan"}, "'nan' is no number"},
      {{"--nccl", ""}, "--nccl: the path is empty"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string error = ErrorOf(arguments);
    EXPECT_TRUE(Has(error, part)) << error;
  }
}

TEST(BenchOptions, HelpNeedsNothingElse) {
  BenchOptions options;
  std::string error;
  EXPECT_TRUE(ParseOptions({"--rank", "1", "--help"}, &options, &error));
  EXPECT_TRUE(options.help);
  EXPECT_TRUE(ParseOptions({"--version"}, &options, &error));
  EXPECT_TRUE(options.version);
}

// The reference page documents every option of the help text.
TEST(BenchOptions, AreInTheReference) {
  std::ifstream page(REFERENCE_PAGE);
  ASSERT_TRUE(page.is_open()) << REFERENCE_PAGE;
  std::stringstream text;
  text << page.rdbuf();
  std::istringstream help{std::string(HelpText())};
  int found = 0;
  for (std::string word; help >> word;) {
    if (!word.starts_with("--")) continue;
    word = word.substr(0, word.find_first_not_of("-abcdefghijklmnopqrstuvwxyz"));
    EXPECT_TRUE(Has(text.str(), "`" + word)) << word;
    ++found;
  }
  EXPECT_GT(found, 10);
}

using Variables = std::map<std::string, std::string>;

Environment With(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

class LauncherTest : public ::testing::Test {
 protected:
  bool Find(const Variables& variables) {
    return FindWorld(flags_, With(variables), &world_, &error_, &hint_);
  }

  void ExpectWorld(const Variables& variables, int process, int processes, int local) {
    ASSERT_TRUE(Find(variables)) << error_;
    EXPECT_EQ(world_.process, process);
    EXPECT_EQ(world_.processes, processes);
    EXPECT_EQ(world_.local_process, local);
  }

  void ExpectError(const Variables& variables, const std::string& part) {
    EXPECT_FALSE(Find(variables));
    EXPECT_TRUE(Has(error_, part)) << error_;
    EXPECT_FALSE(hint_.empty());
  }

  WorldFlags flags_;
  World world_;
  std::string error_;
  std::string hint_;
};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "5"},
                            {"OMPI_COMM_WORLD_SIZE", "16"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};

TEST_F(LauncherTest, WithoutFlagsAndVariablesItIsOneProcess) { ExpectWorld({}, 0, 1, 0); }

TEST_F(LauncherTest, EachLauncherIsUnderstood) {
  ExpectWorld(kOpenMpi, 5, 16, 1);
  ExpectWorld({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}}, 2, 4, 2);
  ExpectWorld(kSlurm, 3, 8, 1);
  ExpectWorld({{"RANK", "7"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}}, 7, 8, 3);
}

TEST_F(LauncherTest, FlagsNumberTheProcessesOfOneHost) {
  flags_.rank = 2;
  flags_.size = 4;
  ExpectWorld({}, 2, 4, 2);
  flags_.local_rank = 0;
  flags_.gpus_per_process = 8;
  ExpectWorld({}, 2, 4, 0);
  EXPECT_EQ(world_.ranks(), 32);
  EXPECT_EQ(world_.first_rank(), 16);
}

TEST_F(LauncherTest, RankAndSizeGoTogether) {
  flags_.rank = 0;
  ExpectError({}, "--rank without --size");
  flags_.rank.reset();
  flags_.size = 2;
  ExpectError({}, "--size without --rank");
}

TEST_F(LauncherTest, ARankLiesBelowTheSize) {
  flags_.rank = 4;
  flags_.size = 4;
  ExpectError({}, "--rank 4 of --size 4");
}

// mpirun or torchrun inside a Slurm job: the Slurm variables belong to the surrounding task.
TEST_F(LauncherTest, OtherLaunchersOverrideSlurm) {
  Variables both = kOpenMpi;
  both.insert(kSlurm.begin(), kSlurm.end());
  ExpectWorld(both, 5, 16, 1);
  flags_.rank = 0;
  flags_.size = 1;
  ExpectWorld(kSlurm, 0, 1, 0);
}

// srun --mpi=pmi2 sets hydra's rank and size, but Slurm's own local rank.
TEST_F(LauncherTest, AContradictionIsAnError) {
  Variables both = kOpenMpi;
  both.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  ExpectError(both,
              "OMPI_COMM_WORLD_RANK=5 of OMPI_COMM_WORLD_SIZE=16 contradicts RANK=1 of "
              "WORLD_SIZE=2");
  flags_.launcher = "torchrun";
  ExpectWorld(both, 1, 2, 1);
  flags_.launcher = "";
  flags_.rank = 0;
  flags_.size = 4;
  ExpectError(kOpenMpi, "--rank 0 of --size 4 contradicts OMPI_COMM_WORLD_RANK=5");
  flags_.launcher = "none";
  ExpectWorld(kOpenMpi, 0, 4, 0);
}

TEST_F(LauncherTest, EqualVariablesOfTwoLaunchersAreAccepted) {
  Variables both = kOpenMpi;
  both.insert({{"PMI_RANK", "5"}, {"PMI_SIZE", "16"}});
  ExpectWorld(both, 5, 16, 1);
}

TEST_F(LauncherTest, HalfALauncherIsAnError) {
  ExpectError({{"PMI_RANK", "1"}}, "PMI_RANK is set, but not PMI_SIZE");
  ExpectError({{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE is set, but not");
  ExpectError({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "local rank of this process");
  flags_.local_rank = 1;
  ExpectWorld({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 1, 2, 1);
}

TEST_F(LauncherTest, VariablesThatMayBeAnybodysAreNotTakenForTorchrun) {
  ExpectWorld({{"RANK", "1"}}, 0, 1, 0);
  ExpectWorld({{"RANK", "captain"}, {"WORLD_SIZE", "1"}}, 0, 1, 0);
  // salloc sets the size for job steps that start later.
  ExpectWorld({{"SLURM_NTASKS", "8"}}, 0, 1, 0);
}

TEST_F(LauncherTest, NumbersAreNumbers) {
  ExpectError({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}, "PMI_RANK='-1' is not a number");
  ExpectError({{"PMI_RANK", "1"}, {"PMI_SIZE", "99999999999999999999"}}, "PMI_SIZE=");
  ExpectError({{"SLURM_PROCID", "0x1"}, {"SLURM_NTASKS", "2"}}, "SLURM_PROCID='0x1'");
}

TEST_F(LauncherTest, ANamedLauncherMustBePresent) {
  flags_.launcher = "hydra";
  ExpectError(kOpenMpi, "--launcher hydra: its variables are not set");
}

TEST_F(LauncherTest, NodesAreEmulatedInBlocks) {
  flags_.size = 6;
  flags_.emulate_nodes = 3;
  const int nodes[] = {0, 0, 1, 1, 2, 2};
  for (int rank = 0; rank < 6; ++rank) {
    flags_.rank = rank;
    ASSERT_TRUE(Find({})) << error_;
    EXPECT_EQ(world_.NodeOf(world_.process), nodes[rank]);
  }
  flags_.emulate_nodes = 4;
  for (int rank = 0, last = 0; rank < 6; ++rank) {
    flags_.rank = rank;
    ASSERT_TRUE(Find({}));
    EXPECT_GE(world_.NodeOf(world_.process), last);
    EXPECT_LE(world_.NodeOf(world_.process), last + 1);
    last = world_.NodeOf(world_.process);
    EXPECT_EQ(last, rank * 4 / 6);
  }
  flags_.emulate_nodes = 7;
  ExpectError({}, "--emulate-nodes 7 with 6 processes");
}

TEST_F(LauncherTest, RanksThatShareAGpuAreNodes) {
  flags_.size = 4;
  flags_.rank = 3;
  flags_.ranks_per_gpu = 2;
  ASSERT_TRUE(Find({})) << error_;
  EXPECT_EQ(world_.NodeOf(world_.process), 3);
  flags_.emulate_nodes = 2;
  ASSERT_TRUE(Find({}));
  EXPECT_EQ(world_.NodeOf(world_.process), 1);
  flags_.gpus_per_process = 2;
  ExpectError({}, "--ranks-per-gpu shares a GPU between processes, and --gpus-per-process is 2");
}

TEST(Master, IsAtMasterAddrAndPort) {
  std::optional<Endpoint> endpoint;
  std::string error;
  ASSERT_TRUE(FindMaster(With({}), &endpoint, &error));
  EXPECT_FALSE(endpoint);
  Variables variables = {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  ASSERT_TRUE(FindMaster(With(variables), &endpoint, &error));
  EXPECT_EQ(endpoint, (Endpoint{"node0", 29500}));
  variables["MASTER_ADDR"] = "fd00::1";
  ASSERT_TRUE(FindMaster(With(variables), &endpoint, &error));
  EXPECT_EQ(endpoint, (Endpoint{"fd00::1", 29500}));
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  ASSERT_TRUE(FindMaster(With(variables), &endpoint, &error));
  EXPECT_EQ(endpoint->port, 29501);
  variables["MASTER_PORT"] = "65535";
  ASSERT_TRUE(FindMaster(With(variables), &endpoint, &error));
  EXPECT_EQ(endpoint->port, 65534);
  variables["MASTER_PORT"] = "none";
  EXPECT_FALSE(FindMaster(With(variables), &endpoint, &error));
  EXPECT_TRUE(Has(error, "MASTER_PORT='none'"));
}

}  // namespace
}  // namespace nccltune::bench
