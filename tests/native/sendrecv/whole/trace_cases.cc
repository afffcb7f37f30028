// SPDX-License-Identifier: Apache-2.0
// Runs programs of two ranks that trace every NCCL call: its result, and the calls that NCCL itself
// got meanwhile. The traces are written to the files CASE_TRACE plus the rank's number, to be
// compared with the traces of other runs.
#include "sendrecv/whole/case.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

constexpr size_t kSmallBytes = 4000;
constexpr size_t kLargeBytes = size_t{40} << 10;
constexpr size_t kMemory = size_t{4} << 20;
// Number of communicators that calls of a program may end.
constexpr size_t kScratch = 4;
constexpr size_t kCount = 64;

size_t Hash(const std::vector<uint8_t>& bytes) {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// One of the two ranks. Both run the same programs.
class TracedRank {
 public:
  TracedRank(Ranks* two, int rank) : two_(*two), rank_(rank) {
    softNcclName(comm_, "comm");
    softNcclName(stream_, "stream");
    EXPECT_EQ(cuMemAlloc_v2(&memory_, kMemory), kCudaSuccess);
    EXPECT_EQ(cuMemsetD8_v2(memory_, 0xEE, kMemory), kCudaSuccess);
    softNcclTrace();
  }
  ~TracedRank() {
    for (ncclComm_t comm : scratch_) EXPECT_EQ(ncclCommDestroy(comm), kNcclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm_), kNcclSuccess);
    EXPECT_EQ(cuMemFree_v2(memory_), kCudaSuccess);
  }
  TracedRank(const TracedRank&) = delete;
  TracedRank& operator=(const TracedRank&) = delete;

  // Runs a program. "(" and ")" start and end a group; "s" and "L" are a small and a large exchange
  // between the ranks; all other words are calls by the names below.
  void Run(const std::string& number, const std::vector<std::string>& words);

  // Returns the calls that a program can make: each NCCL function by its name, and calls that NCCL
  // must refuse, such as "ncclSend!peer".
  static std::vector<std::string> Calls() {
    std::vector<std::string> names;
    for (const auto& [name, call] : AllCalls()) names.push_back(name);
    return names;
  }

  void WriteTrace() const {
    const char* const path = std::getenv("CASE_TRACE");
    ASSERT_NE(path, nullptr);
    std::ofstream(path + std::to_string(rank_)) << text_;
  }

 private:
  using Call = std::function<void(TracedRank&)>;
  struct Table;
  static const std::map<std::string, Call>& AllCalls();

  // Makes a call and traces it with its result.
  template <typename Result, typename... Parameters, typename... Arguments>
  void Make(const char* name, Result (*function)(Parameters...), Arguments... arguments) {
    softNcclCaller(name);
    text_ += "call " + std::string(name);
    if constexpr (std::is_same_v<Result, ncclResult_t>) {
      text_ += " -> " + std::to_string(function(static_cast<Parameters>(arguments)...));
    } else {
      function(static_cast<Parameters>(arguments)...);
    }
    text_ += "\n" + std::string(softNcclTrace());
  }
#define MAKE(name, ...) Make(#name, &soft::name __VA_OPT__(, ) __VA_ARGS__)

  void Exchange(bool large);
  void Finish();

  // Returns a communicator, made on both ranks, that a call may end.
  ncclComm_t Scratch() {
    ncclComm_t comm = scratch_.at(scratch_used_ % scratch_.size());
    ++scratch_used_;
    return comm;
  }
  void EndScratch(const char* name) {
    ncclComm_t comm = Scratch();
    for (ncclComm_t& each : scratch_) {
      if (each == comm) each = nullptr;
    }
    Make(name,
         std::strcmp(name, "ncclCommAbort") == 0 ? &soft::ncclCommAbort : &soft::ncclCommDestroy,
         comm);
  }
  ncclUniqueId NewId() {
    if (rank_ == 0) {
      EXPECT_EQ(pncclGetUniqueId(&two_.shared().id), kNcclSuccess);
    }
    two_.Meet();
    const ncclUniqueId id = two_.shared().id;
    two_.Meet();
    return id;
  }

  Ranks& two_;
  const int rank_;
  ncclComm_t comm_ = Init(two_, 2, rank_);
  CUstream stream_ = NewStream();
  CUdeviceptr memory_ = 0;
  std::string text_;  // the trace so far
  int program_ = 0;
  int depth_ = 0;
  size_t used_ = 0;  // memory that the present program has used
  std::vector<ncclComm_t> scratch_;
  size_t scratch_used_ = 0;
  std::vector<ncclComm_t*> made_;  // created by the present program
  ncclRedOp_t op_ = 0;
  ncclCollConfig_t config_;
};

void TracedRank::Exchange(bool large) {
  const size_t bytes = large ? kLargeBytes : kSmallBytes;
  const CUdeviceptr from = memory_ + used_;
  const CUdeviceptr to = from + bytes;
  used_ += 2 * bytes;
  ASSERT_LE(used_, kMemory);
  const int seed = 1000 * program_ + static_cast<int>(used_ / 1000) + rank_;
  ASSERT_EQ(cuMemcpyHtoD_v2(from, Pattern(bytes, seed).data(), bytes), kCudaSuccess);
  softNcclName(At(from), large ? "large" : "small");
  softNcclName(At(to), large ? "large" : "small");
  MAKE(ncclSend, At(from), bytes, kNcclUint8, 1 - rank_, comm_, stream_);
  MAKE(ncclRecv, At(to), bytes, kNcclUint8, 1 - rank_, comm_, stream_);
}

void TracedRank::Run(const std::string& number, const std::vector<std::string>& words) {
  ++program_;
  text_ += "## " + number;
  for (const std::string& word : words) text_ += word + " ";
  text_ += "\n";
  used_ = 0;
  scratch_used_ = 0;
  const bool needs = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "ncclCommDestroy" || word == "ncclCommAbort" || word == "ncclCommFinalize" ||
           word == "ncclCommRevoke";
  });
  while (needs && scratch_.size() < kScratch) {
    scratch_.push_back(Init(two_, 2, rank_));
    softNcclName(scratch_.back(), "scratch");
  }
  softNcclTrace();
  two_.Meet();
  depth_ = 0;
  for (const std::string& word : words) {
    if (word == "(") {
      MAKE(ncclGroupStart);
      ++depth_;
    } else if (word == ")") {
      MAKE(ncclGroupEnd);
      --depth_;
    } else if (word == "s" || word == "L") {
      Exchange(word == "L");
    } else {
      AllCalls().at(word)(*this);
    }
  }
  // Ends what a program leaves open.
  for (; depth_ > 0; --depth_) MAKE(ncclGroupEnd);
  Finish();
}

void TracedRank::Finish() {
  ASSERT_TRUE(Soon([&] { return cuStreamQuery(stream_) != kNotReady; })) << text_;
  two_.Meet();
  text_ += "bytes " + std::to_string(Hash(Fetch(memory_, used_))) + "\n";
  ASSERT_EQ(cuMemsetD8_v2(memory_, 0xEE, used_), kCudaSuccess);
  for (ncclComm_t* made : made_) {
    EXPECT_EQ(pncclCommDestroy(*made), kNcclSuccess);
    delete made;
  }
  made_.clear();
  // The next program uses new ones.
  for (size_t i = 0; i < std::min(scratch_used_, scratch_.size()); ++i) {
    pncclCommAbort(scratch_[i]);
    // Other memory may have this address next.
    softNcclName(scratch_[i], nullptr);
    scratch_[i] = nullptr;
  }
  std::erase(scratch_, nullptr);
  softNcclTrace();
  two_.Meet();
}

// How each function is called, and which calls must be refused.
struct TracedRank::Table {
  std::map<std::string, Call> calls;

  Table() {
    AddCommunicators();
    AddEnqueued();
    AddConfigured();
    AddRefused();
    AddMemory();
    AddOthers();
  }

#define CALL(name, ...)                                      \
  calls[#name] = [](TracedRank& own) {                       \
    (void)own;                                               \
    own.Make(#name, &soft::name __VA_OPT__(, ) __VA_ARGS__); \
  }
#define REFUSED(name, what, ...)                             \
  calls[#name "!" what] = [](TracedRank& own) {              \
    own.Make(#name, &soft::name __VA_OPT__(, ) __VA_ARGS__); \
  }

  static ncclComm_t* Made(TracedRank& own) {
    own.made_.push_back(new ncclComm_t(nullptr));
    return own.made_.back();
  }
  static void* From(TracedRank& own) { return At(own.memory_ + kMemory / 2); }
  static void* To(TracedRank& own) { return At(own.memory_ + kMemory * 3 / 4); }
  static void* Out() {
    thread_local uint64_t out[64];
    return out;
  }
  template <typename T>
  static T* OutOf() {
    return static_cast<T*>(Out());
  }

  void AddCommunicators() {
    CALL(ncclGetVersion, OutOf<int>());
    CALL(ncclGetUniqueId, OutOf<ncclUniqueId>());
    CALL(ncclCommInitRank, Made(own), 2, own.NewId(), own.rank_);
    CALL(ncclCommInitRankConfig, Made(own), 2, own.NewId(), own.rank_,
         static_cast<ncclConfig_t*>(nullptr));
    calls["ncclCommInitRankScalable"] = [](TracedRank& own) {
      ncclUniqueId id = own.NewId();
      own.Make("ncclCommInitRankScalable", &soft::ncclCommInitRankScalable, Made(own), 2, own.rank_,
               1, &id, static_cast<ncclConfig_t*>(nullptr));
    };
    calls["ncclCommInitAll"] = [](TracedRank& own) {
      own.Make("ncclCommInitAll", &soft::ncclCommInitAll, Made(own), 1, &own.rank_);
    };
    CALL(ncclCommSplit, own.comm_, 1, own.rank_, Made(own), static_cast<ncclConfig_t*>(nullptr));
    calls["ncclCommShrink"] = [](TracedRank& own) {
      // A shrunk communicator needs both ranks, so NCCL refuses this.
      int excluded = own.rank_;
      own.Make("ncclCommShrink", &soft::ncclCommShrink, nullptr, &excluded, 1, Made(own),
               static_cast<ncclConfig_t*>(nullptr), 0);
    };
    CALL(ncclCommGetUniqueId, own.comm_, OutOf<ncclUniqueId>());
    // Growing by no rank: NCCL refuses this.
    CALL(ncclCommGrow, own.comm_, 2, nullptr, -1, Made(own), static_cast<ncclConfig_t*>(nullptr));
    CALL(ncclCommFinalize, own.Scratch());
    calls["ncclCommDestroy"] = [](TracedRank& own) { own.EndScratch("ncclCommDestroy"); };
    calls["ncclCommAbort"] = [](TracedRank& own) { own.EndScratch("ncclCommAbort"); };
    CALL(ncclCommRevoke, own.Scratch(), 0);
    CALL(ncclCommGetAsyncError, own.comm_, OutOf<int>());
    CALL(ncclCommCount, own.comm_, OutOf<int>());
    CALL(ncclCommUserRank, own.comm_, OutOf<int>());
    CALL(ncclCommCuDevice, own.comm_, OutOf<int>());
    CALL(ncclCommSuspend, own.comm_, 0);
    CALL(ncclCommResume, own.comm_);
    CALL(ncclCommMemStats, own.comm_, 0, OutOf<uint64_t>());
    CALL(ncclCommQueryProperties, own.comm_, Out());
    CALL(ncclSetEncryption, nullptr);
    REFUSED(ncclCommRevoke, "flags", own.comm_, 7);
    REFUSED(ncclCommSplit, "comm", nullptr, 0, 0, Made(own), nullptr);
  }

  void AddEnqueued() {
    calls["ncclGroupStart"] = [](TracedRank& own) {
      own.MAKE(ncclGroupStart);
      ++own.depth_;
    };
    CALL(ncclGroupEnd);
    calls["ncclGroupSimulateEnd"] = [](TracedRank& own) {
      ncclSimInfo_t info;
      own.MAKE(ncclGroupSimulateEnd, &info);
    };
    // Its receive buffer is used by this call alone.
    calls["ncclSend"] = [](TracedRank& own) {
      own.MAKE(ncclSend, From(own), 1000, kNcclUint8, own.rank_, own.comm_, own.stream_);
      own.MAKE(ncclRecv, To(own), 1000, kNcclUint8, own.rank_, own.comm_, own.stream_);
    };
    calls["ncclRecv"] = calls["ncclSend"];
    CALL(ncclPutSignal, From(own), 8, kNcclUint8, 1 - own.rank_, nullptr, 0, 0, 0, 0, own.comm_,
         own.stream_);
    CALL(ncclSignal, 1 - own.rank_, 0, 0, 0, own.comm_, own.stream_);
    calls["ncclWaitSignal"] = [](TracedRank& own) {
      // Valid only until the call returns.
      ncclWaitSignalDesc_t descriptor = {
          .count = 1, .peer = 1 - own.rank_, .signal = 0, .context = 0};
      own.MAKE(ncclWaitSignal, 1, &descriptor, own.comm_, own.stream_);
      descriptor.peer = 77;
    };
    CALL(ncclAllGather, From(own), To(own), kCount, kNcclInt32, own.comm_, own.stream_);
    CALL(ncclAllReduce, From(own), To(own), kCount, kNcclInt32, kNcclSum, own.comm_, own.stream_);
    CALL(ncclAlltoAll, From(own), To(own), kCount, kNcclInt32, own.comm_, own.stream_);
    CALL(ncclBcast, To(own), kCount, kNcclInt32, 0, own.comm_, own.stream_);
    CALL(ncclBroadcast, From(own), To(own), kCount, kNcclInt32, 1, own.comm_, own.stream_);
    CALL(ncclGather, From(own), To(own), kCount, kNcclInt32, 0, own.comm_, own.stream_);
    CALL(ncclReduce, From(own), To(own), kCount, kNcclInt32, kNcclSum, 0, own.comm_, own.stream_);
    CALL(ncclReduceScatter, From(own), To(own), kCount, kNcclInt32, kNcclSum, own.comm_,
         own.stream_);
    CALL(ncclScatter, From(own), To(own), kCount, kNcclInt32, 1, own.comm_, own.stream_);
    calls["ncclRedOpCreatePreMulSum"] = [](TracedRank& own) {
      float scalar = 2;
      own.MAKE(ncclRedOpCreatePreMulSum, &own.op_, &scalar, kNcclFloat32, 1, own.comm_);
      own.MAKE(ncclAllReduce, From(own), To(own), kCount, kNcclFloat32, own.op_, own.comm_,
               own.stream_);
      own.MAKE(ncclRedOpDestroy, own.op_, own.comm_);
    };
    calls["ncclRedOpDestroy"] = calls["ncclRedOpCreatePreMulSum"];
  }

  // Valid only until the call returns.
  struct Configuration {
    explicit Configuration(TracedRank* own) : config(&own->config_) {
      *config = {};
      config->algorithms = text;
    }
    ~Configuration() {
      std::memset(text, 'x', sizeof text - 1);
      config->magic = 0;
    }
    Configuration(const Configuration&) = delete;
    Configuration& operator=(const Configuration&) = delete;
    char text[5] = "ring";
    ncclCollConfig_t* config;
  };
#define CONFIGURED(name, ...)                                        \
  calls[#name] = [](TracedRank& own) {                               \
    const Configuration configuration(&own);                         \
    own.Make(#name, &soft::name, __VA_ARGS__, configuration.config); \
  }

  void AddConfigured() {
    CONFIGURED(ncclAllGatherConfig, From(own), To(own), kCount, kNcclInt32, own.comm_, own.stream_);
    CONFIGURED(ncclAllReduceConfig, From(own), To(own), kCount, kNcclInt32, kNcclSum, own.comm_,
               own.stream_);
    CONFIGURED(ncclAlltoAllConfig, From(own), To(own), kCount, kNcclInt32, own.comm_, own.stream_);
    CONFIGURED(ncclBroadcastConfig, From(own), To(own), kCount, kNcclInt32, 1, own.comm_,
               own.stream_);
    CONFIGURED(ncclGatherConfig, From(own), To(own), kCount, kNcclInt32, 0, own.comm_, own.stream_);
    CONFIGURED(ncclReduceConfig, From(own), To(own), kCount, kNcclInt32, kNcclSum, 0, own.comm_,
               own.stream_);
    CONFIGURED(ncclReduceScatterConfig, From(own), To(own), kCount, kNcclInt32, kNcclSum, own.comm_,
               own.stream_);
    CONFIGURED(ncclScatterConfig, From(own), To(own), kCount, kNcclInt32, 1, own.comm_,
               own.stream_);
  }

  void AddRefused() {
    REFUSED(ncclSend, "peer", From(own), 8, kNcclUint8, 2, own.comm_, own.stream_);
    REFUSED(ncclSend, "type", From(own), kLargeBytes, 99, 1 - own.rank_, own.comm_, own.stream_);
    REFUSED(ncclSend, "comm", From(own), kLargeBytes, kNcclUint8, 1 - own.rank_, nullptr,
            own.stream_);
    REFUSED(ncclRecv, "peer", To(own), kLargeBytes, kNcclUint8, -1, own.comm_, own.stream_);
    REFUSED(ncclAllReduce, "comm", From(own), To(own), 8, kNcclInt32, kNcclSum, nullptr,
            own.stream_);
    REFUSED(ncclAllReduce, "op", From(own), To(own), 8, kNcclInt32, -3, own.comm_, own.stream_);
    REFUSED(ncclAlltoAll, "type", From(own), To(own), 8, -1, own.comm_, own.stream_);
    REFUSED(ncclBroadcast, "root", From(own), To(own), 8, kNcclInt32, 2, own.comm_, own.stream_);
    REFUSED(ncclGather, "root", From(own), To(own), 8, kNcclInt32, -1, own.comm_, own.stream_);
    REFUSED(ncclSignal, "peer", 9, 0, 0, 0, own.comm_, own.stream_);
    REFUSED(ncclRedOpDestroy, "op", 3, own.comm_);
    calls["ncclGroupSimulateEnd!info"] = [](TracedRank& own) {
      ncclSimInfo_t info;
      info.magic = 0;
      own.MAKE(ncclGroupSimulateEnd, &info);
    };
    // Without a struct it ends the group like ncclGroupEnd.
    calls["ncclGroupSimulateEnd!null"] = [](TracedRank& own) {
      own.MAKE(ncclGroupSimulateEnd, nullptr);
    };
  }

  void AddMemory() {
    calls["ncclMemAlloc"] = [](TracedRank& own) {
      void* memory = nullptr;
      own.MAKE(ncclMemAlloc, &memory, 4096);
      own.MAKE(ncclMemFree, memory);
    };
    calls["ncclMemFree"] = calls["ncclMemAlloc"];
    CALL(ncclCommRegister, own.comm_, From(own), 4096, OutOf<void*>());
    CALL(ncclCommDeregister, own.comm_, From(own));
    CALL(ncclCommWindowRegister, own.comm_, From(own), 4096, OutOf<void*>(), 0);
    CALL(ncclCommWindowDeregister, own.comm_, nullptr);
    CALL(ncclWinGetUserPtr, own.comm_, nullptr, OutOf<void*>());
    CALL(ncclGetLsaDevicePointer, nullptr, 0, 0, OutOf<void*>());
    CALL(ncclGetLsaMultimemDevicePointer, nullptr, 0, OutOf<void*>());
    CALL(ncclGetMultimemDevicePointer, nullptr, 0, 0, OutOf<void*>());
    CALL(ncclGetPeerDevicePointer, nullptr, 0, 0, OutOf<void*>());
    CALL(ncclGetCftDeviceLeInfo, nullptr, 0, 0, ncclTeam_t(), Out(), Out());
    CALL(ncclGetMultimemDeviceLeInfo, nullptr, 0, Out(), Out());
    CALL(ncclGetPeerDeviceLeInfo, nullptr, 0, 0, Out(), Out());
  }

  void AddOthers() {
    CALL(ncclDevCommCreate, own.comm_, nullptr, Out());
    CALL(ncclDevCommDestroy, own.comm_, nullptr);
    CALL(ncclLLA2ACreateRequirement, 1, 1, Out(), Out());
    CALL(ncclLsaBarrierCreateRequirement, ncclTeam_t(), 1, Out(), Out());
    CALL(ncclGinBarrierCreateRequirement, own.comm_, ncclTeam_t(), 1, Out(), Out());
    CALL(ncclGinInboxA2ACreateRequirement, ncclTeam_t(), 1, 1, Out(), Out());
    CALL(ncclGinOutboxCreateRequirement, 1, 1, Out(), Out());
    CALL(ncclParamBind, OutOf<void*>(), "NCCL_DEBUG");
    CALL(ncclParamGet, nullptr, Out(), 8, OutOf<int>());
    CALL(ncclParamGetAllParameterKeys, OutOf<const char**>(), OutOf<int>());
    CALL(ncclParamGetI8, nullptr, OutOf<int8_t>());
    CALL(ncclParamGetI16, nullptr, OutOf<int16_t>());
    CALL(ncclParamGetI32, nullptr, OutOf<int32_t>());
    CALL(ncclParamGetI64, nullptr, OutOf<int64_t>());
    CALL(ncclParamGetU8, nullptr, OutOf<uint8_t>());
    CALL(ncclParamGetU16, nullptr, OutOf<uint16_t>());
    CALL(ncclParamGetU32, nullptr, OutOf<uint32_t>());
    CALL(ncclParamGetU64, nullptr, OutOf<uint64_t>());
    CALL(ncclParamGetStr, nullptr, OutOf<const char*>());
    CALL(ncclParamGetParameter, "NCCL_DEBUG", OutOf<const char*>(), OutOf<int>());
    CALL(ncclGetErrorString, 3);
    CALL(ncclGetLastError, own.comm_);
    CALL(ncclLLA2ACalcSlots, 1, 1);
    CALL(ncclTeamRankToLsa, own.comm_, ncclTeam_t(), 0);
    CALL(ncclTeamRankToWorld, own.comm_, ncclTeam_t(), 0);
    CALL(ncclTeamLsa, own.comm_);
    CALL(ncclTeamRail, own.comm_);
    CALL(ncclTeamWorld, own.comm_);
    CALL(ncclTeamCft, own.comm_, 0);
    CALL(ncclTeamCftMultimem, own.comm_);
    CALL(ncclResetDebugInit);
    CALL(ncclResetDebugInitInternal);
    CALL(ncclParamDumpAll);
  }
};

const std::map<std::string, TracedRank::Call>& TracedRank::AllCalls() {
  static const Table& table = *new Table;
  return table.calls;
}

constexpr const char* kSymbols[] = {
#define SYMBOL(name, returns) #name,
#include "symbols.inc"
#undef SYMBOL
};

// The positions of a call: alone, in groups, and beside messages that NCCL carries or that copy
// engines may carry.
const std::vector<std::vector<std::string>>& Places() {
  static const auto& places = *new std::vector<std::vector<std::string>>{
      {"f"},
      {"(", "f", ")"},
      {"(", "(", "f", ")", ")"},
      {"(", "s", "f", ")"},
      {"(", "f", "s", ")"},
      {"(", "L", "f", ")"},
      {"(", "f", "L", ")"},
      {"(", "s", "L", "f", "s", "f", "L", ")"},
      {"(", "(", "L", "f", ")", "s", ")"},
      {"s", "f", "s"},
      {"L", "f", "L"},
  };
  return places;
}

// CASE_FIRST_PLACE: leaves out the places before.
TEST(Trace, EachFunctionInEachPlace) {
  const char* const first = std::getenv("CASE_FIRST_PLACE");
  const std::span places =
      std::span(Places()).subspan(first == nullptr ? 0 : static_cast<size_t>(std::atoi(first)));
  const std::vector<std::string> calls = TracedRank::Calls();
  const std::set<std::string> covered(calls.begin(), calls.end());
  for (const std::string symbol : kSymbols) {
    EXPECT_TRUE(symbol.starts_with("pnccl") || covered.contains(symbol)) << symbol;
  }
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    TracedRank traced(&two, rank);
    // Until both ranks have mapped each other's memory.
    for (int i = 0; i < kWarm; ++i) traced.Run("warm ", {"(", "L", ")"});
    for (const std::string& call : calls) {
      for (const std::vector<std::string>& place : places) {
        std::vector<std::string> words = place;
        std::ranges::replace(words, std::string("f"), call);
        traced.Run("", words);
        if (testing::Test::HasFailure()) return;
      }
    }
    traced.WriteTrace();
  });
}

// Runs CASE_PROGRAMS random programs with the seed CASE_SEED.
TEST(Trace, RandomPrograms) {
  const char* const seed = std::getenv("CASE_SEED");
  const char* const programs = std::getenv("CASE_PROGRAMS");
  const std::vector<std::string> calls = TracedRank::Calls();
  // These calls are drawn as often as all others together.
  const std::vector<std::string> often = {
      "ncclAlltoAll",  "ncclAllReduce",      "ncclGather",           "ncclScatter",
      "ncclSend",      "ncclRedOpDestroy",   "ncclGroupSimulateEnd", "ncclCommSplit",
      "ncclSend!peer", "ncclBroadcast!root", "ncclAlltoAllConfig",   "ncclCommAbort"};
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    TracedRank traced(&two, rank);
    std::mt19937 random(static_cast<unsigned>(seed == nullptr ? 1 : std::atoi(seed)));
    const int count = programs == nullptr ? 100 : std::atoi(programs);
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      std::vector<std::string> words;
      const size_t length = 2 + random() % 12;
      int depth = 0;
      while (words.size() < length) {
        switch (random() % 8) {
          case 0:
            if (depth < 3) words.emplace_back("("), ++depth;
            break;
          case 1:
            if (depth > 0) words.emplace_back(")"), --depth;
            break;
          case 2:
            words.emplace_back("s");
            break;
          case 3:
          case 4:
            words.emplace_back("L");
            break;
          case 5:
            words.push_back(calls[random() % calls.size()]);
            break;
          default:
            words.push_back(often[random() % often.size()]);
        }
      }
      traced.Run(std::to_string(i) + ": ", words);
    }
    traced.WriteTrace();
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
