// SPDX-License-Identifier: Apache-2.0
// Scenarios of two ranks that a program may run on NCCL, to be compared with and without the
// send/recv library: on the stand-ins, or on one GPU that both ranks share.
//
//   sendrecv_scenarios NAME [rank=0|1 folder=FOLDER] [SETTING=VALUE]...
//
// Without `rank` both ranks are forked. With it this process is one of them, so that each can be
// started in its own environment; the two meet in the folder, which must be new. The lines that it
// prints are described in scenario_rank.h.
//
//   exchange    groups of a send and a receive, and single calls, of several sizes
//   simulate    ncclGroupSimulateEnd, then messages
//   order       groups of sends, receives, ncclAlltoAll, ncclGather and ncclScatter in random order
//   crowd       `count` sends in one group against as many single receives, then exchanges
//   split       communicators that are split, used together and destroyed in any order
//   abort       communicators that are aborted with messages pending
//   churn       `count` communicators made, split, used, destroyed or aborted; prints resources
#include "sendrecv/whole/scenario_rank.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

// Limits the size of files, like `ulimit -f`. Writes beyond it fail. The signal is ignored, as in
// programs that handle the error.
void LimitFiles(uint64_t bytes) {
  const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) std::perror("setrlimit");
}

// Limits how many more bytes this process may map.
void LimitMappings(uint64_t more) {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages;
  const uint64_t bytes = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more;
  const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::perror("setrlimit");
}

void RunExchange(ScenarioRank& rank) {
  const Settings& settings = rank.settings();
  if (settings.Has("fsize")) LimitFiles(settings.Number("fsize", 0));
  rank.Init();
  rank.ResultContent("first", rank.Exchange(1000, 1));
  if (settings.Has("as-more")) LimitMappings(settings.Number("as-more", 0));
  const uint64_t sizes[] = {16, 4096, rank.large() / 16, rank.large() / 3, rank.large()};
  const CUdeviceptr memory = rank.Allocate(rank.large());
  for (uint64_t round = 0; round < settings.Number("count", 6); ++round) {
    bool right = true;
    for (size_t i = 0; i < std::size(sizes); ++i) {
      right &= rank.Exchange(sizes[i], 100 * round + i);
      // A single call; the direction alternates.
      const uint64_t key = 1000 * round + 10 * i + 7;
      if ((round + i) % 2 == static_cast<uint64_t>(rank.rank())) {
        rank.Put(memory, key, sizes[i]);
        rank.Must(rank.Send(memory, sizes[i]), "ncclSend");
        rank.Wait();
      } else {
        rank.Clear(memory, sizes[i]);
        rank.Must(rank.Receive(memory, sizes[i]), "ncclRecv");
        rank.Wait();
        right &= rank.Holds(memory, key, sizes[i]);
      }
    }
    rank.ResultContent("round." + std::to_string(round), right);
  }
  rank.Free(memory);
  rank.Destroy(rank.comm());
}

// ncclSimInfo_t of NCCL 2.22.
struct SimInfo {
  size_t size = sizeof(SimInfo);
  unsigned magic = 0x74685283;
  unsigned version = 22203;
  float estimated_time = 0;
};

void RunSimulate(ScenarioRank& rank) {
  const auto simulate = rank.Find<ncclResult_t (*)(SimInfo*)>("ncclGroupSimulateEnd");
  rank.Init();
  const CUdeviceptr from = rank.Allocate(rank.large());
  const CUdeviceptr to = rank.Allocate(rank.large());
  uint64_t key = 1;
  // Connects the ranks for both sizes before the simulation.
  for (const uint64_t bytes : {uint64_t{4096}, rank.large()}) {
    const std::string name = std::to_string(bytes);
    for (int i = 0; i < 3; ++i) rank.ResultContent(name + ".before", rank.Exchange(bytes, ++key));
    for (const char* const how : {"plain", "nested", "refused"}) {
      const std::string kind = name + "." + how;
      const bool nested = std::string_view(how) == "nested";
      rank.Put(from, ++key, bytes);
      rank.Clear(to, bytes);
      rank.Wait();
      rank.Must(ncclGroupStart(), "ncclGroupStart");
      if (nested) rank.Must(ncclGroupStart(), "ncclGroupStart");
      rank.ResultCode(kind + ".send", rank.Send(from, bytes));
      rank.ResultCode(kind + ".receive", rank.Receive(to, bytes));
      if (nested) rank.ResultCode(kind + ".inner", ncclGroupEnd());
      SimInfo info;
      const bool refused = std::string_view(how) == "refused";
      if (refused) info.magic = 0;  // not initialised
      const ncclResult_t simulated = simulate(&info);
      rank.ResultCode(kind + ".simulated", simulated);
      rank.ResultContent(kind + ".code",
                         simulated == (refused ? kNcclInvalidArgument : kNcclSuccess));
      rank.Result(kind + ".estimate", info.estimated_time > 0 ? "positive" : "none");
      rank.Meet("simulated");
      // A single message outside of a group, directly after it.
      ncclResult_t single = kNcclSuccess;
      const uint64_t content = 50 * ++key;
      if (rank.rank() == 0) {
        rank.Put(from, content, bytes);
        single = rank.Send(from, bytes);
      } else {
        single = rank.Receive(to, bytes);
      }
      rank.ResultCode(kind + ".single", single);
      rank.Wait();
      if (rank.rank() == 1) rank.ResultContent(kind + ".content", rank.Holds(to, content, bytes));
      rank.ResultContent(kind + ".group", rank.Exchange(bytes, ++key));
    }
  }
  rank.Destroy(rank.comm());
}

using AlltoAll = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, CUstream);
using Rooted = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                CUstream);

// Groups that mix all calls that NCCL puts into its queue for each peer. All messages of a group
// have one size, so that a wrong pairing gives a wrong content and not a hang.
void RunOrder(ScenarioRank& rank) {
  const auto alltoall = rank.Find<AlltoAll>("ncclAlltoAll");
  const auto gather = rank.Find<Rooted>("ncclGather");
  const auto scatter = rank.Find<Rooted>("ncclScatter");
  rank.Init();
  constexpr uint64_t kCalls = 6;
  const uint64_t place = rank.large();
  // Each call has space for its sends and its receives, for up to two ranks.
  const CUdeviceptr out = rank.Allocate(2 * kCalls * place);
  const CUdeviceptr in = rank.Allocate(2 * kCalls * place);
  const auto mine = static_cast<uint64_t>(rank.rank());
  for (uint64_t round = 0; round < rank.settings().Number("count", 40); ++round) {
    std::mt19937_64 random(rank.settings().Number("seed", 1) * 1000 + round);
    const uint64_t sizes[] = {1024, rank.large() / 8, rank.large()};
    const uint64_t bytes = sizes[random() % 3];
    const uint64_t calls = 2 + random() % (kCalls - 1);
    std::vector<std::pair<CUdeviceptr, uint64_t>> expected;  // address and key
    const auto key_of = [&](uint64_t call, uint64_t from, uint64_t to) {
      return ((round * 100 + call) * 2 + from) * 2 + to;
    };
    for (uint64_t call = 0; call < calls; ++call) {
      for (uint64_t to = 0; to < 2; ++to) {
        const CUdeviceptr at = out + 2 * call * place + to * bytes;
        rank.Put(at, key_of(call, mine, to), bytes);
      }
    }
    rank.Clear(in, 2 * kCalls * place);
    std::string words;
    rank.Must(ncclGroupStart(), "ncclGroupStart");
    for (uint64_t call = 0; call < calls; ++call) {
      const CUdeviceptr sent = out + 2 * call * place;
      const CUdeviceptr got = in + 2 * call * place;
      const uint64_t kind = random() % 5;
      const uint64_t root = random() % 2;
      words += "ssagx"[kind];
      ncclResult_t result = kNcclSuccess;
      if (kind < 2) {  // from rank `kind` to the other
        if (mine == kind) {
          result = rank.Send(sent + (1 - mine) * bytes, bytes);
        } else {
          result = rank.Receive(got, bytes);
          expected.emplace_back(got, key_of(call, kind, mine));
        }
      } else if (kind == 2) {
        result = alltoall(At(sent), At(got), bytes, kNcclUint8, rank.comm(), rank.stream());
        expected.emplace_back(got, key_of(call, 0, mine));
        expected.emplace_back(got + bytes, key_of(call, 1, mine));
      } else if (kind == 3) {
        result = gather(At(sent + root * bytes), At(got), bytes, kNcclUint8, static_cast<int>(root),
                        rank.comm(), rank.stream());
        for (uint64_t from = 0; mine == root && from < 2; ++from) {
          expected.emplace_back(got + from * bytes, key_of(call, from, root));
        }
      } else {
        result = scatter(At(sent), At(got), bytes, kNcclUint8, static_cast<int>(root), rank.comm(),
                         rank.stream());
        expected.emplace_back(got, key_of(call, root, mine));
      }
      rank.Must(result, "a call of a group");
    }
    rank.Must(ncclGroupEnd(), "ncclGroupEnd");
    rank.Wait();
    bool right = true;
    for (const auto& [at, key] : expected) right &= rank.Holds(at, key, bytes);
    rank.ResultContent("round." + std::to_string(round) + "." + words + "." + std::to_string(bytes),
                       right);
  }
  rank.Free(out);
  rank.Free(in);
  rank.Destroy(rank.comm());
}

void RunCrowd(ScenarioRank& rank) {
  const uint64_t count = rank.settings().Number("count", 600);
  const uint64_t bytes = rank.settings().Number("bytes", rank.large());
  constexpr uint64_t kStride = 4096;
  const uint64_t sent = bytes + count * kStride;
  rank.Init();
  for (uint64_t i = 0; i < 4; ++i) rank.ResultContent("before", rank.Exchange(bytes, 5 + i));
  const uint8_t* const content = rank.Content(99, sent);
  rank.Meet("crowd");
  // `late` selects which rank posts the first messages first.
  if (rank.settings().Number("late", 2) == static_cast<uint64_t>(rank.rank())) sleep(1);
  if (rank.rank() == 0) {
    const CUdeviceptr from = rank.Allocate(sent);
    rank.Put(from, 99, sent);
    rank.Must(ncclGroupStart(), "ncclGroupStart");
    for (uint64_t i = 0; i < count; ++i) {
      rank.Must(rank.Send(from + i * kStride, bytes), "ncclSend");
    }
    rank.Must(ncclGroupEnd(), "ncclGroupEnd");
    rank.Wait();
    rank.Free(from);
  } else {
    const CUdeviceptr to = rank.Allocate(count * bytes);
    rank.Clear(to, count * bytes);
    for (uint64_t i = 0; i < count; ++i) rank.Must(rank.Receive(to + i * bytes, bytes), "ncclRecv");
    rank.Wait();
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint8_t* const got = rank.Fetch(to + i * bytes, bytes);
      if (std::memcmp(got, content + i * kStride, bytes) != 0) ++wrong;
    }
    rank.Result("crowd.wrong", std::to_string(wrong));
    rank.Free(to);
  }
  // After a full ring copy engines can carry messages again.
  for (uint64_t i = 0; i < 20; ++i) rank.ResultContent("after", rank.Exchange(bytes, 1000 + i));
  rank.Destroy(rank.comm());
}

struct Scenario {
  const char* name;
  void (*run)(ScenarioRank&);
};

constexpr Scenario kScenarios[] = {
    {"exchange", RunExchange}, {"simulate", RunSimulate}, {"order", RunOrder}, {"crowd", RunCrowd},
    {"split", RunSplit},       {"abort", RunAbort},       {"churn", RunChurn},
};

int RunRank(const Scenario& scenario, const Settings& settings, int number,
            const std::string& folder) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  ScenarioRank rank(settings, number, folder);
  scenario.run(rank);
  std::printf("%d done\n", number);
  return 0;
}

// Runs both ranks as child processes. When one fails, the other is killed.
int RunBoth(const Scenario& scenario, const Settings& settings) {
  std::string folder = std::filesystem::temp_directory_path() / "scenario.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return kExitFailed;
  pid_t children[2] = {};
  for (int number = 0; number < 2; ++number) {
    children[number] = fork();
    if (children[number] == 0) std::exit(RunRank(scenario, settings, number, folder));
  }
  int worst = 0;
  for (int left = 2; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    if (status != 0) {
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
      if (worst == 0) worst = code;
      for (const pid_t child : children) {
        if (child != ended && left == 2) kill(child, SIGKILL);
      }
    }
  }
  std::filesystem::remove_all(folder);
  return worst;
}

int Main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const auto* const found = std::find_if(
      std::begin(kScenarios), std::end(kScenarios),
      [&](const Scenario& each) { return !words.empty() && words.front() == each.name; });
  if (found == std::end(kScenarios)) {
    std::fprintf(stderr, "usage: sendrecv_scenarios NAME [SETTING=VALUE]...; names:");
    for (const Scenario& each : kScenarios) std::fprintf(stderr, " %s", each.name);
    std::fprintf(stderr, "\n");
    return kExitUsage;
  }
  const Settings settings({words.begin() + 1, words.end()});
  settings.RejectUnknown();
  if (!settings.Has("rank")) return RunBoth(*found, settings);
  return RunRank(*found, settings, static_cast<int>(settings.Number("rank", 0)),
                 settings.Text("folder", "."));
}

}  // namespace
}  // namespace nccltune::sendrecv

int main(int count, char** arguments) { return nccltune::sendrecv::Main(count, arguments); }
