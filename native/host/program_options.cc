// SPDX-License-Identifier: Apache-2.0
#include "host/program_options.h"

#include <charconv>
#include <optional>
#include <system_error>

namespace nccltune::host {
namespace {

constexpr int kMaxRanks = 1 << 24;

constexpr std::string_view kHelp =
    R"(nccltune-host: plays NCCL's side of the tuner interface, without NCCL and without a GPU

usage: nccltune-host --tuner PATH --nccl VERSION --nodes N --ranks R [options]
       nccltune-host --list-symbols --tuner PATH

The first line of standard output tells how loading the plugin went; then each line of JSON on
standard input is answered by one line of JSON on standard output. Environment variables such as
NCCL_TUNER_CONFIG_FILE reach the plugin unchanged; what it prints goes to standard error.

  --tuner PATH               the plugin, a shared object
  --nccl VERSION             the NCCL version to play, 2.21 or later: 2.28.9
  --nodes N --ranks R        the communicator; 2 ranks or more
  --min-ranks-per-node A     least ranks of a node       (default: R / N, rounded down)
  --max-ranks-per-node B     most ranks of a node        (default: R / N, rounded up)
  --channels C               the communicator's channels (default: not known)
  --without nvls,collnet,ll128   what the platform lacks, for tables that a request does not give
  --list-symbols             print the interface versions that the plugin exports, and end
  --verbose                  also print the plugin's log lines to standard error
  --help

Exit status: 0 ok, 2 usage, 3 the plugin cannot be loaded or exports no interface that this NCCL
takes, 4 the plugin's init failed.
)";

bool ParseNumber(std::string_view name, std::string_view text, int* out, std::string* error) {
  const char* const first = text.data();
  const char* const last = first + text.size();
  const std::from_chars_result result = std::from_chars(first, last, *out);
  if (result.ec == std::errc() && result.ptr == last && *out >= 1 && *out <= kMaxRanks) return true;
  *error = std::string(name) + ": '" + std::string(text) + "' is no number from 1 to " +
           std::to_string(kMaxRanks);
  return false;
}

bool ParseWithout(std::string_view text, Platform* platform, std::string* error) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
    if (word == "nvls") {
      platform->nvls = false;
    } else if (word == "collnet") {
      platform->collnet = false;
    } else if (word == "ll128") {
      platform->ll128 = false;
    } else {
      *error = "--without: '" + std::string(word) + "' is none of nvls, collnet, ll128";
      return false;
    }
  }
  return true;
}

class Reader {
 public:
  Reader(ProgramOptions* options, std::string* error) : options_(options), error_(error) {}

  bool ReadAll(const std::vector<std::string_view>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::string_view name = arguments[i];
      if (ReadFlag(name)) continue;
      std::string_view value;
      const size_t equals = name.find('=');
      if (equals != std::string_view::npos) {
        value = name.substr(equals + 1);
        name = name.substr(0, equals);
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      } else {
        return Fail("'" + std::string(name) + "' is not an option, or lacks its value");
      }
      if (!ReadOption(name, value)) return false;
    }
    return options_->help || Complete();
  }

 private:
  bool Fail(std::string message) {
    *error_ = std::move(message);
    return false;
  }

  bool ReadFlag(std::string_view name) {
    bool* flag = name == "--list-symbols" ? &options_->list_symbols
                 : name == "--verbose"    ? &options_->verbose
                 : name == "--help"       ? &options_->help
                                          : nullptr;
    if (flag == nullptr) return false;
    *flag = true;
    return true;
  }

  bool ReadOption(std::string_view name, std::string_view value) {
    Platform& platform = options_->host.platform;
    if (name == "--tuner") {
      options_->host.tuner = value;
      return !value.empty() || Fail("--tuner: the path is empty");
    }
    if (name == "--nccl") {
      const std::optional<NcclVersion> version = ParseNcclVersion(value);
      if (!version) return Fail("--nccl: '" + std::string(value) + "' is no version like 2.28.9");
      if (*version < NcclVersion{2, 21, 0}) {
        return Fail("--nccl: NCCL before 2.21 took plugins of interface v1 only");
      }
      options_->host.nccl = *version;
      return true;
    }
    if (name == "--nodes") return ParseNumber(name, value, &nodes_, error_);
    if (name == "--ranks") return ParseNumber(name, value, &ranks_, error_);
    if (name == "--min-ranks-per-node") return ParseNumber(name, value, &least_, error_);
    if (name == "--max-ranks-per-node") return ParseNumber(name, value, &most_, error_);
    if (name == "--channels") {
      int channels = 0;
      if (!ParseNumber(name, value, &channels, error_)) return false;
      options_->host.channels = channels;
      return true;
    }
    if (name == "--without") return ParseWithout(value, &platform, error_);
    return Fail("'" + std::string(name) + "' is not an option");
  }

  bool Complete() {
    if (options_->host.tuner.empty()) return Fail("--tuner is missing");
    if (options_->list_symbols) return true;
    if (options_->host.nccl.major == 0) return Fail("--nccl is missing");
    if (nodes_ == 0 || ranks_ == 0) return Fail("--nodes and --ranks are needed");
    if (ranks_ < 2) return Fail("--ranks: with one rank NCCL asks no tuner");
    if (nodes_ > ranks_) return Fail("--nodes: there are fewer ranks than nodes");
    Platform& platform = options_->host.platform;
    platform.nodes = nodes_;
    platform.ranks = ranks_;
    platform.min_ranks_per_node = least_ == 0 ? ranks_ / nodes_ : least_;
    platform.max_ranks_per_node = most_ == 0 ? (ranks_ + nodes_ - 1) / nodes_ : most_;
    if (platform.min_ranks_per_node > ranks_ / nodes_ ||
        platform.max_ranks_per_node < (ranks_ + nodes_ - 1) / nodes_ ||
        platform.max_ranks_per_node > ranks_) {
      return Fail("ranks per node do not go with --nodes and --ranks");
    }
    return true;
  }

  ProgramOptions* options_;
  std::string* error_;
  int nodes_ = 0;
  int ranks_ = 0;
  int least_ = 0;
  int most_ = 0;
};

}  // namespace

bool ParseProgramOptions(const std::vector<std::string_view>& arguments, ProgramOptions* options,
                         std::string* error) {
  *options = ProgramOptions();
  return Reader(options, error).ReadAll(arguments);
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::host
