// SPDX-License-Identifier: Apache-2.0
// Helpers of the test cases. The cases are GoogleTest programs. The whole test starts them with the
// send/recv library, each in an environment of its own.
#pragma once

#include "sendrecv/stand_in/processes.h"
#include "standard.h"

namespace nccltune::sendrecv {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

// Large enough for a copy engine in these tests, and small enough for sanitizers.
inline constexpr size_t kBytes = size_t{384} << 10;

// Rounds until copy engines carry messages: the memory is exported, mapped and reported first.
inline constexpr int kWarm = 4;

// Applies CASE_RANK1="NAME=value ...", the environment of rank 1 alone. Call it before the first
// NCCL call.
inline void TakeEnvironment(int rank) {
  const char* const text = std::getenv(("CASE_RANK" + std::to_string(rank)).c_str());
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    ASSERT_NE(equals, std::string::npos) << word;
    setenv(word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
  }
}

inline void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Returns how many sends of this process NCCL has got so far.
inline uint64_t NativeSends() {
  uint64_t sends = 0;
  uint64_t receives = 0;
  softNcclCounts(&sends, &receives);
  return sends;
}

// The buffers with which a rank exchanges messages.
struct Pair {
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  size_t bytes = 0;
};

inline Pair NewPair(size_t bytes) {
  return {.from = Fill(bytes, 0), .to = Fill(bytes, -1), .bytes = bytes};
}

inline void Free(const Pair& pair) {
  EXPECT_EQ(cuMemFree_v2(pair.from), kCudaSuccess);
  EXPECT_EQ(cuMemFree_v2(pair.to), kCudaSuccess);
}

// Makes calls in a group.
inline void Grouped(const std::function<void()>& calls) {
  EXPECT_EQ(ncclGroupStart(), kNcclSuccess);
  calls();
  EXPECT_EQ(ncclGroupEnd(), kNcclSuccess);
}

// One rank of a case. Its functions expect success.
struct Member {
  Ranks& ranks;
  int rank = 0;
  ncclComm_t comm = nullptr;
  CUstream stream = NewStream();
  Pair pair = NewPair(kBytes);
  int peer = 1 - rank;  // of the calls below

  // This rank in another communicator, or with other buffers.
  Member In(ncclComm_t other, int rank_there, int peer_there) const {
    return {.ranks = ranks,
            .rank = rank_there,
            .comm = other,
            .stream = stream,
            .pair = pair,
            .peer = peer_there};
  }
  Member With(const Pair& other) const {
    Member with = In(comm, rank, peer);
    with.pair = other;
    return with;
  }

  void Meet() const { ranks.Meet(); }
  // Write the content of a seed to what is sent, overwrite what is received, and compare it.
  void Put(int seed) const {
    EXPECT_EQ(cuMemcpyHtoD_v2(pair.from, Pattern(pair.bytes, seed).data(), pair.bytes),
              kCudaSuccess);
  }
  void Clear() const { EXPECT_EQ(cuMemsetD8_v2(pair.to, 0xEE, pair.bytes), kCudaSuccess); }
  void ExpectReceived(int seed) const {
    EXPECT_EQ(Fetch(pair.to, pair.bytes), Pattern(pair.bytes, seed)) << "rank " << rank;
  }

  void Send() const {
    EXPECT_EQ(ncclSend(At(pair.from), pair.bytes, kNcclUint8, peer, comm, stream), kNcclSuccess);
  }
  void Receive() const {
    EXPECT_EQ(ncclRecv(At(pair.to), pair.bytes, kNcclUint8, peer, comm, stream), kNcclSuccess);
  }
  // Makes this rank's call for a message of rank `sender`.
  void Transfer(int sender) const { rank == sender ? Send() : Receive(); }
  void Wait() const { EXPECT_EQ(cuStreamSynchronize(stream), kCudaSuccess); }
  // Returns whether the stream is idle soon.
  bool Ends() const {
    return Soon([&] { return cuStreamQuery(stream) != kNotReady; });
  }
  // Runs one group with a send to the peer and a receive from it, and checks the contents, which
  // depend on the round. Returns the first error.
  ncclResult_t Exchange(int round) const {
    const int seed = 10 * (round + 1);
    Put(seed + rank);
    Clear();
    ncclResult_t result = ncclGroupStart();
    if (result == kNcclSuccess) {
      result = ncclSend(At(pair.from), pair.bytes, kNcclUint8, peer, comm, stream);
    }
    if (result == kNcclSuccess) {
      result = ncclRecv(At(pair.to), pair.bytes, kNcclUint8, peer, comm, stream);
    }
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
    if (result == kNcclSuccess) ExpectReceived(seed + peer);
    return result;
  }
  // Repeats exchanges. After kWarm of them both ranks have mapped each other's memory.
  void Warm(int rounds = kWarm) const {
    for (int round = 0; round < rounds; ++round) {
      ASSERT_EQ(Exchange(round), kNcclSuccess);
      Meet();
    }
  }
  void Destroy() const { EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess); }
  void Abort() const { EXPECT_EQ(ncclCommAbort(comm), kNcclSuccess); }
};

// Runs a case in a process for each rank. Two ranks have made `rounds` exchanges before. `killed`:
// a rank that is expected to die by SIGKILL.
inline void RunRanks(int count, int rounds, const std::function<void(Member&)>& body,
                     int killed = -1) {
  Ranks ranks(count);
  ranks.Run(
      [&](int rank) {
        TakeEnvironment(rank);
        ncclComm_t comm = Init(ranks, count, rank);
        ASSERT_NE(comm, nullptr);
        Member own = {.ranks = ranks, .rank = rank, .comm = comm};
        ASSERT_NO_FATAL_FAILURE(own.Warm(rounds));
        body(own);
      },
      killed);
}

inline void RunTwo(int rounds, const std::function<void(Member&)>& body) {
  RunRanks(2, rounds, body);
}

// Polls for an error like a framework's watchdog. Returns false if there is none.
inline bool LearnsOfAnError(ncclComm_t comm) {
  return Soon([&] {
    ncclResult_t error = kNcclSuccess;
    return ncclCommGetAsyncError(comm, &error) != kNcclSuccess || error != kNcclSuccess;
  });
}

// Returns how many lines with this text the library has written about this process. Needs
// CaseWithChecks (output.h).
inline size_t CountReported(const std::string& text) {
  const std::string mine = "process " + std::to_string(getpid()) + ": ";
  std::ifstream file(std::getenv("NCCLTUNE_SENDRECV_STATS"));
  size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find(mine) != std::string::npos && line.find(text) != std::string::npos) ++count;
  }
  return count;
}

// Returns when the library's thread has checked everything once more.
inline void AwaitCheck() {
  // The counts are written at the beginning of a check. So the check is complete when they are
  // written again.
  for (int i = 0; i < 2; ++i) {
    const size_t before = CountReported("");
    EXPECT_EQ(raise(SIGUSR1), 0);
    EXPECT_TRUE(Soon([&] { return CountReported("") > before; }));
  }
}

// Waits until a process has ended, whether its parent knows or not.
inline void AwaitEnd(pid_t process) {
  EXPECT_TRUE(Soon([&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string state;
    file >> state >> state >> state;
    return !file || state == "Z" || state == "X";
  }));
}

inline size_t CountIn(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// Return numbers for this process: threads, open files, mappings of the library's shared memory,
// and those of them whose file still has a name.
inline size_t CountThreads() { return CountIn("/proc/self/task"); }

inline size_t CountFiles() {
  size_t count = 0;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string file = std::filesystem::read_symlink(each.path(), error).string();
    // The stand-in keeps one file open for each unique id, so those do not count.
    if (file.find("soft-nccl") == std::string::npos) ++count;
  }
  return count;
}

inline size_t CountMappings(bool deleted) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/nccltune-sendrecv-") == std::string::npos) continue;
    if (deleted || !line.ends_with("(deleted)")) ++count;
  }
  return count;
}

inline size_t CountSegments() { return CountMappings(true); }

// Returns a descriptor of the library's file in shared memory, or -1.
inline int FileOfSegment() {
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string file = std::filesystem::read_symlink(each.path(), error).string();
    if (file.find("/dev/shm/nccltune-sendrecv-") != 0) continue;
    return std::stoi(each.path().filename().string());
  }
  return -1;
}

inline size_t CountNamedSegments() { return CountMappings(false); }

}  // namespace nccltune::sendrecv
