// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/log_counts.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/settings.h"
#include "sendrecv/counts.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

std::atomic<bool> g_signaled = false;
static_assert(std::atomic<bool>::is_always_lock_free);

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

bool TakeCountsSignal() { return g_signaled.exchange(false); }

}  // namespace nccltune::sendrecv
