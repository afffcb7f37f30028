// SPDX-License-Identifier: Apache-2.0
//
// The shipped shared object, played by what NCCL does.
#include "profiler/recorder.h"

#include "common/text.h"
#include "log_line.h"
#include "program_output.h"
#include "recorded.h"
#include "testing.h"

// What the recorder's close of a file does first, in the tests that link it.
static int (*on_close)(int file) = nullptr;
extern "C" int __real_close(int file);
extern "C" int __wrap_close(int file) {
  const int result = on_close == nullptr ? 0 : on_close(file);
  return __real_close(file) == 0 ? result : -1;
}

namespace nccltune::profiler {
namespace {

template <typename Profiler>
class EachVersion : public Recorded {
 protected:
  static constexpr int kVersion = Profiler::kVersion;
  using Communicator = PlayedCommunicator<Profiler>;

  // What the file must have for a call of a program.
  static void Expect(const ProgramCall& call, Rows* calls, Rows* tasks) {
    const std::string function = call.function;
    const std::string bytes = std::to_string(call.count * 4) + " ";
    if (kVersion >= 5) {
      ++(*calls)[function + " " + bytes + call.type + (call.captured ? " captured " : " ")];
    }
    const bool gathers = function == "AllGather" || function == "Broadcast";
    std::string task = function + " " + bytes + (gathers ? "ncclInt8" : call.type) + " ";
    if (call.run == ProgramCall::kUnreported) return;
    if (call.run == ProgramCall::kCopyEngine) {
      if (kVersion < 6) return;
      task = function + " " + bytes + call.type + " copy_engine ";
    } else if (call.run == ProgramCall::kSymmetric) {
      if (kVersion >= 7) task += "AGxLL_R symmetric ";
    } else if (call.IsPointToPoint()) {
      task += std::to_string(call.channels) + " ";
    } else {
      task += std::string(call.algorithm) + " " + call.protocol + " " +
              std::to_string(call.channels) + " ";
    }
    (*tasks)[task] += call.replays;
  }

  static std::vector<ProgramCall> Program(unsigned seed, int length) {
    std::mt19937 random(seed);
    const std::array functions = {"AllReduce", "AllGather", "ReduceScatter",
                                  "Broadcast", "Send",      "Recv"};
    std::vector<ProgramCall> program;
    for (int i = 0; i < length; ++i) {
      ProgramCall call;
      call.function = functions.at(random() % functions.size());
      if (random() % 2 == 0) call.type = "ncclInt32";
      call.count = size_t{256} << random() % 3U;
      if (call.IsPointToPoint()) {
        call.type = "ncclInt32";
      } else {
        if (call.count >= 1024) call.algorithm = "TREE";
        if (random() % 8 == 0) call.run = ProgramCall::kCopyEngine;
        if (random() % 8 == 0) call.run = ProgramCall::kSymmetric;
        if (random() % 8 == 0) call.run = ProgramCall::kUnreported;
      }
      if (kVersion >= 5 && random() % 16 == 0) {
        call.captured = true;
        if (call.run != ProgramCall::kCopyEngine) call.replays = 1 + static_cast<int>(random() % 3);
      }
      program.push_back(call);
    }
    return program;
  }
};
using Interfaces =
    testing::Types<abi::Profiler<4>, abi::Profiler<5>, abi::Profiler<6>, abi::Profiler<7>>;
TYPED_TEST_SUITE(EachVersion, Interfaces);

TYPED_TEST(EachVersion, CountsAreThoseOfTheProgramCallForCall) {
  Rows calls;
  Rows tasks;
  const std::vector<ProgramCall> program = TestFixture::Program(7, 5000);
  for (const ProgramCall& call : program) TestFixture::Expect(call, &calls, &tasks);
  ASSERT_EQ(this->InChild([&program] {
    typename TestFixture::Communicator communicator(PROFILER_PLUGIN, "tensor \"0\"\n", 8, 3);
    for (const ProgramCall& call : program) communicator.Play(call);
    return communicator.result();
  }),
            0);
  const json::Value file = this->OnlyFile();
  EXPECT_EQ(RowsOf(file, "calls"), calls);
  EXPECT_EQ(RowsOf(file, "tasks"), tasks);
  EXPECT_EQ(Int(file, "nccltune_record"), 1);
  EXPECT_TRUE(*file.Find("ended")->AsBool());
  const json::Value& communicator = file.Find("communicators")->AsArray()->at(0);
  EXPECT_EQ(*communicator.Find("name")->AsString(), "tensor \"0\"?");
  EXPECT_EQ(*communicator.Find("id")->AsString(), "0000000000005eed");
  EXPECT_EQ(Int(communicator, "ranks"), 8);
  EXPECT_EQ(Int(communicator, "nodes"), 1);
  EXPECT_EQ(Int(communicator, "rank"), 3);
  EXPECT_EQ(Int(communicator, "interface"), this->kVersion);
  EXPECT_EQ(Int(communicator, "lost_calls"), 0);
}

// An event is known again by the addresses of its words, which mean nothing beyond a communicator:
// another NCCL has others, and one that is loaded later may have other words at the same ones.
TYPED_TEST(EachVersion, AddressesOfWordsAreThoseOfOneCommunicator) {
  constexpr size_t kPairs = 3;
  std::array<Rows, 2 * kPairs> calls;
  std::array<Rows, 2 * kPairs> tasks;
  const auto program_of = [](unsigned pair) {
    std::vector<ProgramCall> program;
    while (program.size() < 2000) {
      for (const ProgramCall& call : TestFixture::Program(20 + pair, 100)) program.push_back(call);
    }
    return program;
  };
  const auto is_of_second = [](size_t number) { return number % 7 % 2 == 1; };
  for (unsigned pair = 0; pair < kPairs; ++pair) {
    const std::vector<ProgramCall> program = program_of(pair);
    for (size_t i = 0; i < program.size(); ++i) {
      const size_t communicator = 2 * pair + (is_of_second(i) ? 1 : 0);
      TestFixture::Expect(program[i], &calls.at(communicator), &tasks.at(communicator));
    }
  }
  ASSERT_EQ(this->InChild([&] {
    std::array<std::array<char, 32>, 40> memory{};
    for (unsigned pair = 0; pair < kPairs; ++pair) {
      typename TestFixture::Communicator first(PROFILER_PLUGIN, "first", 8, int(pair));
      typename TestFixture::Communicator second(PROFILER_PLUGIN, "second", 8, int(pair));
      // Each pair has the words at other places; within one, each word is at two of them.
      std::map<std::string, size_t> places;
      const std::vector<ProgramCall> program = program_of(pair);
      for (size_t i = 0; i < program.size(); ++i) {
        ProgramCall call = program[i];
        for (const char** const word : {&call.function, &call.type, &call.algorithm}) {
          const size_t place = places.try_emplace(*word, 2 * places.size()).first->second;
          char* const copy = memory.at(place + i / 5 % 2).data();
          *word = std::strcpy(copy, *word);
        }
        (is_of_second(i) ? second : first).Play(call);
      }
    }
    return 0;
  }),
            0);
  const json::Value file = this->OnlyFile();
  ASSERT_EQ(file.Find("communicators")->AsArray()->size(), calls.size());
  for (const json::Value& communicator : *file.Find("communicators")->AsArray()) {
    const bool is_second = *communicator.Find("name")->AsString() == "second";
    const auto number = static_cast<size_t>(2 * Int(communicator, "rank") + (is_second ? 1 : 0));
    Rows recorded_calls;
    Rows recorded_tasks;
    AddRows(communicator, "calls", &recorded_calls);
    AddRows(communicator, "tasks", &recorded_tasks);
    EXPECT_EQ(recorded_calls, calls.at(number));
    EXPECT_EQ(recorded_tasks, tasks.at(number));
  }
}

// NCCL has one mask for the process, which each init writes while other threads call NCCL.
TYPED_TEST(EachVersion, ThreadsThatMakeAndEndCommunicators) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 1000;
  Rows calls;
  Rows tasks;
  const std::vector<ProgramCall> program = TestFixture::Program(8, 4);
  for (int i = 0; i < kThreads * kRounds; ++i) {
    for (const ProgramCall& call : program) TestFixture::Expect(call, &calls, &tasks);
  }
  ASSERT_EQ(this->InChild([&program] {
    const typename TestFixture::Communicator idle(PROFILER_PLUGIN, "idle", kThreads, 0);
    std::atomic<bool> was_off = false;
    const std::jthread watcher([&was_off](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (__atomic_load_n(&nccls_mask, __ATOMIC_RELAXED) == 0) was_off = true;
      }
    });
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([&program, rank] {
        for (int round = 0; round < kRounds; ++round) {
          typename TestFixture::Communicator communicator(PROFILER_PLUGIN, "all", kThreads, rank);
          for (const ProgramCall& call : program) communicator.Play(call);
        }
      });
    }
    threads.clear();
    return was_off ? 1 : 0;
  }),
            0);
  const json::Value file = this->OnlyFile();
  EXPECT_EQ(file.Find("communicators")->AsArray()->size(), size_t{kThreads} + 1);
  EXPECT_EQ(RowsOf(file, "calls"), calls);
  EXPECT_EQ(RowsOf(file, "tasks"), tasks);
}

TYPED_TEST(EachVersion, WithoutAFolderNothingIsAskedForAndWritten) {
  this->variables_.Set("NCCLTUNE_RECORD", "");
  EXPECT_EQ(this->InChild([] {
    nccls_mask = -1;
    typename TestFixture::Communicator communicator(PROFILER_PLUGIN, "all", 2, 0, &KeepLine);
    if (nccls_mask != 0 || communicator.context() != nullptr || !TakeLines().empty()) return 1;
    nccls_mask = 7;  // NCCL 2.31 lets an operator set the mask
    communicator.Play({.count = 1});
    return int{communicator.result()};
  }),
            0);
  EXPECT_TRUE(this->Files().empty());
}

// A plugin that comes after the recorder gets what it would get alone.
TYPED_TEST(EachVersion, AnotherPluginGetsWhatItWouldGetAlone) {
  const std::map<int, const char*> plugins = {{4, LOGGING_PROFILER_V4},
                                              {5, LOGGING_PROFILER_V5},
                                              {6, LOGGING_PROFILER_V6},
                                              {7, LOGGING_PROFILER_V7}};
  const char* const own = plugins.at(TestFixture::kVersion);
  const std::vector<ProgramCall> program = TestFixture::Program(9, 100);
  Rows calls;
  Rows tasks;
  for (const ProgramCall& call : program) TestFixture::Expect(call, &calls, &tasks);
  const auto play = [&program](const char* plugin) {
    typename TestFixture::Communicator communicator(plugin, "all", 4, 2);
    for (const ProgramCall& call : program) communicator.Play(call);
    return int{communicator.result()};
  };
  const std::string log = this->folder_ + "/log";
  this->variables_.Set("LOGGING_PROFILER_LOG", log);
  for (const char* const option : {"LOGGING_PROFILER_NONE", "LOGGING_PROFILER_NO_GROUPS"}) {
    const ScopedVariable set(option, "1");
    for (const char* const mask : {"1", "2", "4", "6", "8", "32", "62", "256", "512", "4096"}) {
      const ScopedVariable masked("LOGGING_PROFILER_MASK", mask);
      for (const bool records : {true, false}) {
        fs::remove_all(log);
        fs::remove_all(this->records());
        const ScopedVariable folder("NCCLTUNE_RECORD", records ? this->records().c_str() : "");
        ASSERT_EQ(this->InChild([&] { return play(own); }), 0);
        const std::string alone = this->Content(log);
        EXPECT_FALSE(alone.empty());
        fs::remove_all(log);
        const ScopedVariable next("NCCLTUNE_RECORD_NEXT", own);
        ASSERT_EQ(this->InChild([&] { return play(PROFILER_PLUGIN); }), 0);
        EXPECT_EQ(this->Content(log), alone) << option << ", mask " << mask << ", " << records;
        if (records) {
          EXPECT_EQ(RowsOf(this->OnlyFile(), "calls"), calls) << option << ", mask " << mask;
          EXPECT_EQ(RowsOf(this->OnlyFile(), "tasks"), tasks) << option << ", mask " << mask;
        }
      }
    }
  }
}

TEST_F(Recorded, ACommunicatorThatNobodyEndsIsWrittenAtExit) {
  ASSERT_EQ(InChild([] {
              static auto* const leaked = new Newest(PROFILER_PLUGIN, "all", 2, 0);
              leaked->Play({.count = 1});
              return 0;
            }),
            0);
  EXPECT_TRUE(*OnlyFile().Find("ended")->AsBool());
  EXPECT_EQ(RowsOf(OnlyFile(), "calls"), (Rows{{"AllReduce 4 ncclFloat32 ", 1}}));
}

TEST_F(Recorded, OnlyTheEndOfTheProcessIsTheEnd) {
  EXPECT_EQ(InChild([this] {
              const auto calls_in_file = [this] {
                const json::Value file = OnlyFile();
                if (*file.Find("ended")->AsBool()) std::_Exit(1);
                const Rows rows = RowsOf(file, "calls");
                return rows.empty() ? 0 : rows.begin()->second;
              };
              for (int i = 0; i < 2; ++i) Newest(PROFILER_PLUGIN, "all", 2, 0).Play({.count = 1});
              Newest later(PROFILER_PLUGIN, "all", 2, 0);
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
              while (calls_in_file() < 2 && std::chrono::steady_clock::now() < end) {
                later.Play({.count = 1});
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
              }
              std::_Exit(calls_in_file() < 2 ? 2 : 0);
              return 0;
            }),
            0);
}

// As a signal handler does in the midst of a write, and while a file system does not answer.
TEST_F(Recorded, TheProcessExitsWhileAWriteDoesNotEnd) {
  for (const bool in_other_thread : {false, true}) {
    EXPECT_EQ(InChild([in_other_thread] {
                alarm(60);
                Recorder* const recorder =
                    Recorder::OfProcess(Log(nullptr, abi::kSubsysInit, kLogPrefix));
                static std::atomic<bool> is_in_write = false;
                const auto write = [recorder] { recorder->End(recorder->Begin({})); };
                if (!in_other_thread) {
                  on_close = [](int) -> int { std::exit(7); };
                  write();
                }
                on_close = [](int) {
                  is_in_write = true;
                  is_in_write.notify_all();
                  return pause();
                };
                std::thread(write).detach();
                is_in_write.wait(false);
                return 7;
              }),
              7)
        << in_other_thread;
  }
}

TEST_F(Recorded, AForkedChildHasAFileOfItsOwnOrNone) {
  ASSERT_EQ(InChild([] {
              Newest communicator(PROFILER_PLUGIN, "parent", 2, 0);
              communicator.Play({.count = 1});
              const int idle = InChild([] { return 0; });
              const int using_nccl = InChild([] {
                Newest own(PROFILER_PLUGIN, "child", 2, 0);
                own.Play({.count = 2});
                return 0;
              });
              return idle + using_nccl;
            }),
            0);
  ASSERT_EQ(Files().size(), 2U);
  Rows all;
  for (const fs::path& path : Files()) {
    const Rows rows = RowsOf(Parsed(path), "calls");
    EXPECT_EQ(rows.size(), 1U);
    all.insert(rows.begin(), rows.end());
  }
  EXPECT_EQ(all, (Rows{{"AllReduce 4 ncclFloat32 ", 1}, {"AllReduce 8 ncclFloat32 ", 1}}));
}

TEST_F(Recorded, EndedCommunicatorsAreAddedUpInBoundedMemory) {
  constexpr int kRounds = 3000;
  constexpr int kNames = static_cast<int>(kMostEnded) + 6;
  ASSERT_EQ(InChild([] {
              for (int round = 0; round < kRounds; ++round) {
                Newest communicator(PROFILER_PLUGIN, std::to_string(round % kNames).c_str(), 2, 0);
                communicator.Play({.count = 25});
              }
              return 0;
            }),
            0);
  const json::Value file = OnlyFile();
  int64_t communicators = Int(file, "lost_communicators");
  EXPECT_GT(communicators, 0);
  EXPECT_EQ(Int(file, "lost_calls"), 2 * communicators);  // the call and its task
  EXPECT_EQ(Int(file, "lost_bytes"), 200 * communicators);
  EXPECT_EQ(file.Find("communicators")->AsArray()->size(), kMostEnded);
  for (const json::Value& item : *file.Find("communicators")->AsArray()) {
    communicators += Int(item, "communicators");
  }
  EXPECT_EQ(communicators, kRounds);
}

TEST_F(Recorded, AFullTableSaysSo) {
  ASSERT_EQ(InChild([] {
              Newest communicator(PROFILER_PLUGIN, "all", 2, 0);
              for (const int times : {2, 3}) {  // of each call, one after the other
                for (size_t count = 1; count <= 1000; ++count) {
                  for (int i = 0; i < times; ++i) communicator.Play({.count = count});
                }
              }
              communicator.Play({.type = "ncclFloat4e2m1", .count = 1});
              return 0;
            }),
            0);
  const json::Value file = OnlyFile();
  const json::Value& communicator = file.Find("communicators")->AsArray()->at(0);
  EXPECT_EQ(Int(communicator, "lost_calls"), 2);  // of a type whose size is not known
  for (const char* const list : {"calls", "tasks"}) {
    int64_t calls = 0;
    int64_t bytes = 0;
    for (const json::Value& row : *communicator.Find(list)->AsArray()) {
      calls += Int(row, "count");
      const bool rounded = row.Find("bytes_from") != nullptr;
      bytes += rounded ? Int(row, "total_bytes") : Int(row, "bytes") * Int(row, "count");
    }
    EXPECT_EQ(calls, 5000);
    EXPECT_EQ(bytes, int64_t{4} * 5 * 1000 * 1001 / 2);
  }
}

TEST_F(Recorded, AFolderThatCannotBeWrittenIsOneWarning) {
  std::ofstream(folder_ + "/file") << "content";
  for (const std::string& folder : {folder_ + "/file", folder_ + "/missing/folder"}) {
    const ScopedVariable record("NCCLTUNE_RECORD", folder.c_str());
    EXPECT_EQ(InChild([] {
                int warnings = 0;
                for (int i = 0; i < 3; ++i) {
                  Newest communicator(PROFILER_PLUGIN, "all", 2, 0, &KeepLine);
                  communicator.Play({.count = 1});
                  if (communicator.result() != abi::kSuccess) return 100;
                }
                for (const std::string& line : TakeLines()) {
                  warnings += CountIn(line, "WARN PROFILER/nccltune: NCCLTUNE_RECORD=");
                }
                return warnings;
              }),
              1)
        << folder;
  }
  EXPECT_EQ(Content(folder_ + "/file"), "content");
}

TEST_F(Recorded, AFileOfAnotherProcessIsKept) {
  RecordFile first;
  RecordFile second;
  ASSERT_EQ(first.Open(records(), 1), "");
  ASSERT_EQ(second.Open(records(), 1), "");
  ASSERT_EQ(first.Write("first"), "");
  ASSERT_EQ(second.Write("second"), "");
  ASSERT_EQ(first.Write("first again"), "");
  EXPECT_EQ(Content(first.path()), "first again");
  EXPECT_EQ(Content(second.path()), "second");
  EXPECT_EQ(Files().size(), 2U);
}

// Others may be able to write to the folder, and know the host and the process id.
TEST_F(Recorded, NothingThatOthersPlacedInTheFolderIsWrittenTo) {
  RecordFile file;
  ASSERT_EQ(file.Open(records(), 1), "");
  std::ofstream(folder_ + "/victim") << "content";
  const std::string name = fs::path(file.path()).filename();
  fs::create_symlink(folder_ + "/victim", file.path());
  fs::create_symlink(folder_ + "/victim", records() + "/." + name + ".new");
  const std::string second = name.substr(0, name.size() - 5) + "-2.json";
  ASSERT_EQ(mkfifo((records() + "/." + second + ".new").c_str(), 0666), 0);
  alarm(60);  // nobody reads the FIFO
  for (const char* const text : {"first", "again"}) {
    ASSERT_EQ(file.Write(text), "");
    EXPECT_EQ(file.path(), records() + "/" + second);
    EXPECT_EQ(Content(file.path()), text);
    EXPECT_EQ(fs::status(file.path()).permissions() & ~fs::perms(0644), fs::perms::none);
  }
  alarm(0);
  EXPECT_EQ(Content(folder_ + "/victim"), "content");
  EXPECT_EQ(Files().size(), 4U);
}

TEST_F(Recorded, AFileWhoseCloseFailsDoesNotReplaceTheLastOne) {
  RecordFile file;
  ASSERT_EQ(file.Open(records(), 1), "");
  ASSERT_EQ(file.Write("first"), "");
  on_close = [](int written) {
    const int lost = ftruncate(written, 0);
    errno = EDQUOT;
    return lost - 1;
  };
  EXPECT_EQ(file.Write("second"), ErrorWords(EDQUOT));
  on_close = nullptr;
  EXPECT_EQ(Content(file.path()), "first");
  EXPECT_EQ(Files().size(), 1U) << "the new file is left";
  EXPECT_EQ(file.Write("third"), "");
  EXPECT_EQ(Content(file.path()), "third");
}

TEST_F(Recorded, ATouchedFileAsksForAWriteOnce) {
  RecordFile file;
  ASSERT_EQ(file.Open(records(), 1), "");
  EXPECT_FALSE(file.IsAskedFor());
  std::ofstream(records() + "/.write").flush();
  EXPECT_TRUE(file.IsAskedFor());
  EXPECT_FALSE(file.IsAskedFor());
  RecordFile later;
  ASSERT_EQ(later.Open(records(), 1), "");
  EXPECT_FALSE(later.IsAskedFor());
}

TEST_F(Recorded, ARunningProcessWritesPeriodically) {
  variables_.Set("NCCLTUNE_RECORD_EVERY", "1");
  ASSERT_EQ(InChild([this] {
              Newest communicator(PROFILER_PLUGIN, "all", 2, 0);
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
              while (Files().empty() && std::chrono::steady_clock::now() < end) {
                communicator.Play({.count = 1});
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
              }
              // An empty file has only just got its name.
              while (Content(Files().at(0)).empty()) std::this_thread::yield();
              const json::Value file = Parsed(Files().at(0));
              std::_Exit(*file.Find("ended")->AsBool() ? 1 : 0);
              return 0;
            }),
            0);
  EXPECT_GE(RowsOf(OnlyFile(), "calls").at("AllReduce 4 ncclFloat32 "), 1);
}

}  // namespace
}  // namespace nccltune::profiler
