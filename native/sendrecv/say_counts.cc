// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/say_counts.h"

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
#include "sendrecv/say.h"

namespace nccltune::sendrecv {
namespace {

std::atomic<bool> g_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void Ask(int /*signal*/) { g_asked.store(true); }

}  // namespace

void SayCounts(const std::string& more) {
  const std::string path = ReadPath(SettingId::kSendrecvStats);
  std::string words;
  std::istringstream lines(TheCounts().Words() + more);
  for (std::string line; std::getline(lines, line);) {
    words += "nccltune sendrecv: process " + std::to_string(getpid()) + ": " + line + "\n";
  }
  const int file = path.empty() || path == "-"
                       ? dup(STDERR_FILENO)
                       : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) {
    Warn("NCCLTUNE_SENDRECV_STATS: " + path + ": " + std::strerror(errno));
    return;
  }
  // In one piece: ranks share the file.
  if (write(file, words.data(), words.size()) < 0) Warn(path + ": " + std::strerror(errno));
  close(file);
}

void SayCountsAtSignal() {
  std::vector<std::string> problems;
  const std::string_view word = ReadWord(SettingId::kSendrecvSignal, &problems);
  for (const std::string& problem : problems) Warn(problem);
  if (word == "none") return;
  const int number = word == "USR1" ? SIGUSR1 : SIGUSR2;
  struct sigaction present = {};
  if (sigaction(number, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) return;
  struct sigaction ours = {};
  ours.sa_handler = &Ask;
  ours.sa_flags = SA_RESTART;
  sigaction(number, &ours, nullptr);
}

bool CountsAreAsked() { return g_asked.exchange(false); }

}  // namespace nccltune::sendrecv
