// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/nccl_library.h"

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
#include <type_traits>
#include <utility>

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
namespace {

constexpr NcclVersion kOldest = {2, 21, 0};
constexpr const char* kSystemName = "libnccl.so.2";
constexpr const char* kHint = "pass another libnccl.so.2 with --nccl PATH";

// Looks up all functions. Returns the name of the first missing one, or null if all exist.
const char* FindAll(const SharedLibrary& library, nccl::Functions* f) {
  const char* missing = nullptr;
#define NCCLTUNE_FIND(result, name, parameters)                            \
  f->name = library.Find<std::remove_pointer_t<decltype(f->name)>>(#name); \
  if (f->name == nullptr && missing == nullptr) missing = #name;
  NCCLTUNE_NCCL_FUNCTIONS(NCCLTUNE_FIND)
#undef NCCLTUNE_FIND
  return missing;
}

// Opens the library and sets *from to its source. Sets *error if it cannot be opened.
SharedLibrary OpenBest(const std::string& path, const char** from, OpenError* error) {
  std::string reason;
  if (!path.empty()) {
    *from = "flag";
    SharedLibrary library = SharedLibrary::Open(path, &reason);
    if (!library) {
      *error = {OpenError::Kind::kBadInput, "--nccl " + path + " cannot be opened: " + reason, ""};
    }
    return library;
  }
  if (const std::string torch = FindTorchNccl(); !torch.empty()) {
    *from = "torch";
    SharedLibrary library = SharedLibrary::Open(torch, &reason);
    if (!library) {
      *error = {OpenError::Kind::kCannotRun, "PyTorch's NCCL cannot be opened: " + reason, kHint};
    }
    return library;
  }
  *from = "system";
  SharedLibrary library = SharedLibrary::Open(kSystemName, &reason);
  if (!library) {
    *error = {
        OpenError::Kind::kCannotRun,
        "no NCCL: the active python3 has no PyTorch with one, and the system has none: " + reason,
        "pass a libnccl.so.2 with --nccl PATH, such as that of the package nvidia-nccl-cu13"};
  }
  return library;
}

}  // namespace

std::unique_ptr<NcclLibrary> NcclLibrary::Open(const std::string& path, OpenError* error) {
  std::unique_ptr<NcclLibrary> nccl(new NcclLibrary);
  SharedLibrary library = OpenBest(path, &nccl->from_, error);
  if (!library) return nullptr;
  nccl->path_ = library.Path();
  const bool usable = nccl->TakeFunctions(library, error);
  // Never unload the library: NCCL leaves threads running that execute its code.
  library.Keep();
  return usable ? std::move(nccl) : nullptr;
}

bool NcclLibrary::TakeFunctions(const SharedLibrary& library, OpenError* error) {
  const OpenError::Kind kind =
      from_ == std::string("flag") ? OpenError::Kind::kBadInput : OpenError::Kind::kCannotRun;
  const char* const missing = FindAll(library, &functions_);
  int code = 0;
  // Check the version first, because "too old" is a clearer error than a missing function.
  const bool reports =
      functions_.ncclGetVersion != nullptr && functions_.ncclGetVersion(&code) == abi::kSuccess;
  const std::optional<NcclVersion> version = reports ? NcclVersionFromCode(code) : std::nullopt;
  if (!version) {
    *error = {kind, path_ + " is not NCCL: it reports no version", kHint};
    return false;
  }
  version_ = *version;
  if (version_ < kOldest) {
    *error = {kind,
              "NCCL " + ToString(version_) + " (" + path_ +
                  ") is too old: switching choices needs 2.21 or later",
              kHint};
    return false;
  }
  if (missing != nullptr) {
    *error = {kind,
              path_ + " reports NCCL " + ToString(version_) + " but lacks the function " + missing,
              kHint};
    return false;
  }
  return true;
}

std::optional<StepError> NcclLibrary::Check(nccl::Result result, const char* what, int rank,
                                            nccl::Comm comm) const {
  if (result == abi::kSuccess) return std::nullopt;
  return FailureOf(result, what, rank, comm);
}

StepError NcclLibrary::FailureOf(nccl::Result result, const char* what, int rank,
                                 nccl::Comm comm) const {
  const bool fatal = result != abi::kInvalidArgument && result != abi::kInvalidUsage;
  std::string text = std::string("NCCL failed to ") + what + ": ";
  const char* words = functions_.ncclGetErrorString(result);
  text += words == nullptr ? "error " + std::to_string(result) : words;
  const char* last = functions_.ncclGetLastError(comm);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return StepError{.kind = ErrorKind::kNccl, .text = std::move(text), .rank = rank, .fatal = fatal};
}

namespace {

constexpr const char* kDriverHint =
    "start it on a machine with NVIDIA GPUs and their newest driver, or use a recording: "
    "--replay PATH";

}  // namespace

std::unique_ptr<CudaLibrary> CudaLibrary::Open(OpenError* error) {
  error->kind = OpenError::Kind::kCannotRun;
  error->hint = kDriverHint;
  std::unique_ptr<CudaLibrary> driver(new CudaLibrary);
  if (const std::string why = cu::Load(cu::kBench, &driver->api_); !why.empty()) {
    error->text = "no GPU: " + why;
    return nullptr;
  }
  const cu::Api& f = driver->api_;
  if (const cu::Result result = f.Init(0); result != cu::kSuccess) {
    error->text = "no GPU: the NVIDIA driver cannot be initialised: " + driver->Text(result);
    return nullptr;
  }
  int version = 0;
  if (f.DriverGetVersion(&version) == cu::kSuccess && version > 0) {
    driver->version_ = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  if (f.DeviceGetCount(&driver->devices_) != cu::kSuccess || driver->devices_ < 1) {
    error->text = "no GPU: the NVIDIA driver shows none";
    return nullptr;
  }
  return driver;
}

std::string CudaLibrary::Text(cu::Result result) const {
  const char* text = nullptr;
  std::string name = cu::NameOf(api_, result);
  if (api_.GetErrorString(result, &text) != cu::kSuccess || text == nullptr) return name;
  return std::string(text) + " (" + name + ")";
}

std::optional<StepError> CudaLibrary::Check(cu::Result result, const char* what, int rank) const {
  if (result == cu::kSuccess) return std::nullopt;
  return StepError{.kind = ErrorKind::kCuda,
                   .text = std::string("CUDA failed to ") + what + ": " + Text(result),
                   .rank = rank,
                   .fatal = true};
}

}  // namespace nccltune::bench
