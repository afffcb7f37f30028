// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/torch_nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string_view>

#include "common/descriptor.h"

namespace nccltune::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kMark = "nccltune:";
constexpr std::chrono::seconds kLongest{10};

// An empty entry in sys.path is the current folder, which must not be searched for packages.
constexpr const char* kProgram = R"(
import os, sys
from importlib.util import find_spec
sys.path = [entry for entry in sys.path if entry]
torch = find_spec("torch")
folders = []
if torch and torch.submodule_search_locations:
    try:
        package = find_spec("nvidia.nccl")
    except ImportError:
        package = None
    if package:
        folders += package.submodule_search_locations or []
    folders += torch.submodule_search_locations
for folder in folders:
    file = os.path.join(folder, "lib", "libnccl.so.2")
    if os.path.exists(file):
        print("nccltune:" + file)
        break
)";

// Returns the output of the process up to its end, or up to kLongest. Kills the process if it still
// runs, and reaps it.
std::string OutputOf(pid_t process, int descriptor) {
  const Clock::time_point deadline = Clock::now() + kLongest;
  std::string output;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd watched = {descriptor, POLLIN, 0};
    const int ready = left > 0 ? poll(&watched, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    std::array<char, 4096> bytes;
    const ssize_t got = read(descriptor, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(bytes.data(), static_cast<size_t>(got));
  }
  kill(process, SIGKILL);  // harmless if the process has ended, because it is not reaped yet
  while (waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
  }
  return output;
}

std::string RunPython() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const Descriptor reads(ends[0]);
  Descriptor writes(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writes.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = "python3";
  std::string option = "-c";
  std::string program = kProgram;
  std::array<char*, 4> arguments = {name.data(), option.data(), program.data(), nullptr};
  pid_t process = 0;
  const int failed =
      posix_spawnp(&process, name.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  writes.Close();
  return failed == 0 ? OutputOf(process, reads.fd()) : "";
}

}  // namespace

std::string FindTorchNccl() {
  const std::string output = RunPython();
  // Search for the mark, because start-up code of the Python installation may print too.
  const size_t start = output.rfind(kMark);
  if (start == std::string::npos) return "";
  const size_t end = output.find('\n', start);
  if (end == std::string::npos) return "";
  return output.substr(start + kMark.size(), end - start - kMark.size());
}

}  // namespace nccltune::bench
