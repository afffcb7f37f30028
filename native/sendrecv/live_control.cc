// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/live_control.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "common/file.h"
#include "common/settings.h"
#include "common/text.h"
#include "sendrecv/identity.h"
#include "sendrecv/log.h"
#include "sendrecv/route.h"

namespace nccltune::sendrecv {
namespace {

std::atomic<bool> g_signaled = false;
static_assert(std::atomic<bool>::is_always_lock_free);

std::atomic<bool> g_off = false;
std::atomic<bool> g_has_metrics = false;

// Returns the file to write, or an empty text.
std::string NewMetricsFile() {
  constexpr const char* kBegin = "nccltune-sendrecv-";
  constexpr const char* kEnd = ".prom";
  const std::string folder = ReadPath(SettingId::kSendrecvMetrics);
  if (folder.empty()) return "";
  // Files of processes that were killed. A living process writes its file every 10 s.
  RemoveOldFiles(folder, kBegin, kEnd, 600, [](int /*file*/) { return false; });
  // Processes in containers may have equal numbers.
  return folder + "/" + kBegin + std::to_string(getpid()) + "-" + Hex64(ThisProcess().low) + kEnd;
}

// Never destroyed, because it is used at exit.
const std::string& MetricsFile() {
  static const std::string& file = *new std::string(NewMetricsFile());
  return file;
}

void OnSignal(int /*signal*/) { g_signaled.store(true); }

}  // namespace

void LogCounts(const std::string& more) {
  const std::string path = ReadPath(SettingId::kSendrecvStats);
  std::string text;
  std::istringstream lines(ProcessCounts().Report() + more);
  for (std::string line; std::getline(lines, line);) {
    text += "nccltune sendrecv: process " + std::to_string(getpid()) + ": " + line + "\n";
  }
  const int file = path.empty() || path == "-"
                       ? dup(STDERR_FILENO)
                       : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) {
    Warn("NCCLTUNE_SENDRECV_STATS: " + path + ": " + std::strerror(errno));
    return;
  }
  // Use a single write, so that the lines of ranks that share the file do not mix.
  if (write(file, text.data(), text.size()) < 0) Warn(path + ": " + std::strerror(errno));
  close(file);
}

void LogCountsAtSignal() {
  std::vector<std::string> problems;
  const std::string_view word = ReadWord(SettingId::kSendrecvSignal, &problems);
  for (const std::string& problem : problems) Warn(problem);
  if (word == "none") return;
  const int number = word == "USR1" ? SIGUSR1 : SIGUSR2;
  struct sigaction present = {};
  if (sigaction(number, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) return;
  struct sigaction ours = {};
  ours.sa_handler = &OnSignal;
  ours.sa_flags = SA_RESTART;
  sigaction(number, &ours, nullptr);
}

void LogRoutes(int rank) {
  Info("rank " + std::to_string(rank) +
       " ends; messages of this process so far: " + ProcessCounts().Report("; "));
}

void WriteMetrics() {
  const std::string& file = MetricsFile();
  static int calls = 0;
  if (file.empty() || calls++ % 50 != 0) return;
  std::string text;
  for (const bool bytes : {false, true}) {
    const std::string name =
        std::string("nccltune_sendrecv_") + (bytes ? "bytes" : "messages") + "_total";
    text += "# TYPE " + name + " counter\n";
    for (size_t i = 0; i < static_cast<size_t>(Route::kCount); ++i) {
      const Counts::Total total = ProcessCounts().Get(static_cast<Route>(i));
      text += name + "{pid=\"" + std::to_string(getpid()) + "\",route=\"" +
              std::string(DescribeRoute(static_cast<Route>(i))) + "\"} " +
              std::to_string(bytes ? total.bytes : total.messages) + "\n";
    }
  }
  text += "# TYPE nccltune_sendrecv_off gauge\nnccltune_sendrecv_off " +
          std::to_string(IsSwitchedOff() ? 1 : 0) + "\n";
  // A scraper must not read half of it.
  const std::string part = file + ".part";
  std::ofstream(part) << text;
  if (rename(part.c_str(), file.c_str()) == 0) {
    g_has_metrics = true;
  } else {
    Warn("NCCLTUNE_SENDRECV_METRICS: " + file + ": " + std::strerror(errno));
  }
}

void RemoveMetrics() {
  if (g_has_metrics.exchange(false)) unlink(MetricsFile().c_str());
}

void CheckKillSwitch() {
  static const std::string file = ReadPath(SettingId::kSendrecvOffFile);
  struct stat found = {};
  const bool off =
      stat(file.c_str(), &found) == 0 && (found.st_uid == geteuid() || found.st_uid == 0);
  if (g_off == off) return;
  // The line first: the process may end as soon as messages go another way.
  Info(off ? file + " exists: NCCL carries all later messages"
           : file + " was removed: copy engines carry messages again");
  g_off = off;
}

bool IsSwitchedOff() { return g_off.load(std::memory_order_relaxed); }

bool TakeCountsSignal() { return g_signaled.exchange(false); }

}  // namespace nccltune::sendrecv
