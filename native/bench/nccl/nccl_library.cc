// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/nccl_library.h"

#include <type_traits>
#include <utility>

#include "bench/nccl/torch_nccl.h"

namespace nccltune::bench {
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

}  // namespace nccltune::bench
