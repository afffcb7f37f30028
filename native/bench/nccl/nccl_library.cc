// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/nccl_library.h"

#include "bench/nccl/torch_nccl.h"

namespace nccltune::bench {
namespace {

constexpr NcclVersion kOldest = {2, 21, 0};
constexpr const char* kSystemName = "libnccl.so.2";
constexpr const char* kHint = "--nccl PATH names another libnccl.so.2";

bool FindAll(const OpenedLibrary& library, nccl::Functions* f, std::string* missing) {
#define NCCLTUNE_FIND(name) library.Find(#name, &f->name, missing)
  NCCLTUNE_FIND(ncclGetVersion);
  NCCLTUNE_FIND(ncclGetUniqueId);
  NCCLTUNE_FIND(ncclGetErrorString);
  NCCLTUNE_FIND(ncclGetLastError);
  NCCLTUNE_FIND(ncclCommInitRank);
  NCCLTUNE_FIND(ncclCommDestroy);
  NCCLTUNE_FIND(ncclCommAbort);
  NCCLTUNE_FIND(ncclCommGetAsyncError);
  NCCLTUNE_FIND(ncclMemAlloc);
  NCCLTUNE_FIND(ncclMemFree);
  NCCLTUNE_FIND(ncclCommRegister);
  NCCLTUNE_FIND(ncclCommDeregister);
  NCCLTUNE_FIND(ncclRedOpCreatePreMulSum);
  NCCLTUNE_FIND(ncclRedOpDestroy);
  NCCLTUNE_FIND(ncclGroupStart);
  NCCLTUNE_FIND(ncclGroupEnd);
  NCCLTUNE_FIND(ncclBroadcast);
  NCCLTUNE_FIND(ncclReduce);
  NCCLTUNE_FIND(ncclAllGather);
  NCCLTUNE_FIND(ncclReduceScatter);
  NCCLTUNE_FIND(ncclAllReduce);
  NCCLTUNE_FIND(ncclSend);
  NCCLTUNE_FIND(ncclRecv);
#undef NCCLTUNE_FIND
  return missing->empty();
}

// The library and where it came from; null with *error.
std::unique_ptr<OpenedLibrary> OpenBest(const std::string& path, const char** from,
                                        OpenError* error) {
  std::string reason;
  if (!path.empty()) {
    *from = "flag";
    auto library = OpenedLibrary::Open(path, &reason);
    if (library == nullptr) {
      *error = {OpenError::Kind::kBadInput, "--nccl " + path + " cannot be opened: " + reason, ""};
    }
    return library;
  }
  if (const std::string torch = FindTorchNccl(); !torch.empty()) {
    *from = "torch";
    auto library = OpenedLibrary::Open(torch, &reason);
    if (library == nullptr) {
      *error = {OpenError::Kind::kCannotRun, "PyTorch's NCCL cannot be opened: " + reason, kHint};
    }
    return library;
  }
  *from = "system";
  auto library = OpenedLibrary::Open(kSystemName, &reason);
  if (library == nullptr) {
    *error = {
        OpenError::Kind::kCannotRun,
        "no NCCL: the active python3 has no PyTorch with one, and the system has none: " + reason,
        "--nccl PATH names a libnccl.so.2, such as that of the package nvidia-nccl-cu13"};
  }
  return library;
}

}  // namespace

std::unique_ptr<NcclLibrary> NcclLibrary::Open(const std::string& path, OpenError* error) {
  std::unique_ptr<NcclLibrary> nccl(new NcclLibrary);
  nccl->library_ = OpenBest(path, &nccl->from_, error);
  if (nccl->library_ == nullptr || !nccl->TakeFunctions(error)) return nullptr;
  return nccl;
}

bool NcclLibrary::TakeFunctions(OpenError* error) {
  const OpenError::Kind kind =
      from_ == std::string("flag") ? OpenError::Kind::kBadInput : OpenError::Kind::kCannotRun;
  const std::string where = library_->Path();
  std::string missing;
  int code = 0;
  // The version first: it says more about an old library than a name that it lacks.
  library_->Find("ncclGetVersion", &functions_.ncclGetVersion, &missing);
  const bool tells =
      functions_.ncclGetVersion != nullptr && functions_.ncclGetVersion(&code) == abi::kSuccess;
  const std::optional<NcclVersion> version = tells ? NcclVersionFromCode(code) : std::nullopt;
  if (!version) {
    *error = {kind, where + " is no NCCL: it tells no version", kHint};
    return false;
  }
  version_ = *version;
  if (version_ < kOldest) {
    *error = {kind,
              "NCCL " + ToString(version_) + " (" + where +
                  ") is too old: switching choices takes the tuner plugins of 2.21 and later",
              kHint};
    return false;
  }
  if (!FindAll(*library_, &functions_, &missing)) {
    *error = {kind,
              where + " says that it is NCCL " + ToString(version_) + " and has no " + missing,
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
