// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/whole/case.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace nccltune::sendrecv {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

void TakeEnvironment(int rank) {
  const char* const text = std::getenv(("CASE_RANK" + std::to_string(rank)).c_str());
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    ASSERT_NE(equals, std::string::npos) << word;
    setenv(word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
  }
}

ncclResult_t Send(CUdeviceptr from, size_t bytes, int peer, ncclComm_t comm, CUstream stream) {
  return ncclSend(At(from), bytes, kNcclUint8, peer, comm, stream);
}

ncclResult_t Receive(CUdeviceptr to, size_t bytes, int peer, ncclComm_t comm, CUstream stream) {
  return ncclRecv(At(to), bytes, kNcclUint8, peer, comm, stream);
}

uint64_t NativeSends() {
  uint64_t sends = 0;
  uint64_t receives = 0;
  softNcclCounts(&sends, &receives);
  return sends;
}

Pair NewPair(size_t bytes) {
  return {.from = Fill(bytes, 0), .to = Fill(bytes, -1), .bytes = bytes};
}

void Free(const Pair& pair) {
  EXPECT_EQ(cuMemFree_v2(pair.from), kCudaSuccess);
  EXPECT_EQ(cuMemFree_v2(pair.to), kCudaSuccess);
}

ncclResult_t Exchange(const Pair& pair, int round, int rank, int peer, ncclComm_t comm,
                      CUstream stream) {
  const int seed = 10 * (round + 1);
  EXPECT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(pair.bytes, seed + rank).data(), pair.bytes),
            kCudaSuccess);
  EXPECT_EQ(cuMemsetD8_v2(pair.to, 0xEE, pair.bytes), kCudaSuccess);
  ncclResult_t result = ncclGroupStart();
  if (result == kNcclSuccess) result = Send(pair.from, pair.bytes, peer, comm, stream);
  if (result == kNcclSuccess) result = Receive(pair.to, pair.bytes, peer, comm, stream);
  const ncclResult_t ended = ncclGroupEnd();
  if (result == kNcclSuccess) result = ended;
  if (result != kNcclSuccess) return result;
  // After a refusal the peer ends this rank's waits, without the bytes.
  EXPECT_TRUE(Soon([&] {
    return ncclCommGetAsyncError(comm, &result) != kNcclSuccess || result != kNcclSuccess ||
           cuStreamQuery(stream) != kNotReady;
  })) << "rank "
      << rank << " hangs";
  if (result != kNcclSuccess) return result;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &result), kNcclSuccess);
  if (result == kNcclSuccess) {
    EXPECT_EQ(Fetch(pair.to, pair.bytes), Pattern(pair.bytes, seed + peer)) << "rank " << rank;
  }
  return result;
}

void Warm(Ranks& two, const Pair& pair, int rank, ncclComm_t comm, CUstream stream, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    ASSERT_EQ(Exchange(pair, round, rank, 1 - rank, comm, stream), kNcclSuccess);
    two.Meet();
  }
}

void RunTwo(int rounds, const TwoRanksCase& body) {
  Ranks two(2);
  two.Run([&](int rank) {
    ncclComm_t comm = Init(two, 2, rank);
    CUstream stream = NewStream();
    const Pair pair = NewPair(kBytes);
    ASSERT_NO_FATAL_FAILURE(Warm(two, pair, rank, comm, stream, rounds));
    body(two, rank, comm, stream, pair);
  });
}

bool LearnsOfAnError(ncclComm_t comm) {
  return Soon([&] {
    ncclResult_t error = kNcclSuccess;
    return ncclCommGetAsyncError(comm, &error) != kNcclSuccess || error != kNcclSuccess;
  });
}

void AwaitCheck() {
  const std::string mine = "process " + std::to_string(getpid()) + ": ";
  const auto lines = [&] {
    std::ifstream file(std::getenv("NCCLTUNE_SENDRECV_STATS"));
    size_t count = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.find(mine) != std::string::npos) ++count;
    }
    return count;
  };
  // The counts are written at the beginning of a check. So the check is complete when they are
  // written again.
  for (int i = 0; i < 2; ++i) {
    const size_t before = lines();
    EXPECT_EQ(raise(SIGUSR1), 0);
    EXPECT_TRUE(Soon([&] { return lines() > before; }));
  }
}

void AwaitEnd(pid_t process) {
  EXPECT_TRUE(Soon([&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string state;
    file >> state >> state >> state;
    return !file || state == "Z" || state == "X";
  }));
}

namespace {

size_t CountIn(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

size_t CountMappings(bool deleted) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/nccltune-sendrecv-") == std::string::npos) continue;
    if (deleted || !line.ends_with("(deleted)")) ++count;
  }
  return count;
}

}  // namespace

size_t CountThreads() { return CountIn("/proc/self/task"); }

size_t CountFiles() {
  size_t count = 0;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string file = std::filesystem::read_symlink(each.path(), error).string();
    // The stand-in keeps one file open for each unique id, so those do not count.
    if (file.find("soft-nccl") == std::string::npos) ++count;
  }
  return count;
}

int FileOfSegment() {
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string file = std::filesystem::read_symlink(each.path(), error).string();
    if (file.find("/dev/shm/nccltune-sendrecv-") != 0) continue;
    return std::stoi(each.path().filename().string());
  }
  return -1;
}

size_t CountSegments() { return CountMappings(true); }

size_t CountNamedSegments() { return CountMappings(false); }

}  // namespace nccltune::sendrecv
