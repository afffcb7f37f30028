// SPDX-License-Identifier: Apache-2.0
#include "tuner/startup.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "common/content_hash.h"
#include "common/settings.h"
#include "common/shared_library.h"
#include "common/text.h"

namespace nccltune::tuner {
namespace {

struct PluginSettings {
  std::string path;         // empty if no variable is set
  const char* path_source;  // the variable that contains the path
  std::string hash;         // the expected content; empty: any
  bool strict;
  bool stale_off;
};

PluginSettings ReadSettings(const Warnings& warnings) {
  std::vector<std::string> problems = UnknownSettings();
  PluginSettings settings{};
  for (const SettingId id : {SettingId::kConfig, SettingId::kNcclConfigFile}) {
    settings.path = ReadPath(id);
    settings.path_source = Settings()[static_cast<size_t>(id)].name;
    if (!settings.path.empty()) break;
  }
  settings.hash = ReadPath(SettingId::kConfigHash);
  settings.strict = ReadWord(SettingId::kStrict, &problems) == "1";
  settings.stale_off = ReadWord(SettingId::kStale, &problems) == "off";
  for (const std::string& problem : problems) warnings.LogOnce(problem);
  return settings;
}

std::string Count(size_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

void LogProblems(const TunerConfig& config, const std::string& path, const Warnings& warnings) {
  for (const Problem& problem : config.problems) {
    warnings.LogOnce(path + ":" + std::to_string(problem.line) + ": " + problem.text);
  }
  const size_t unlogged = config.bad_lines + config.notes - config.problems.size();
  if (unlogged > 0) {
    warnings.LogOnce(path + ": " + Count(unlogged, "more line", "more lines") +
                     " like these (content " + Hex64(config.content_hash) + ")");
  }
}

// The reasons why no rule of the file is used. If all are false, the rules are used.
struct Verdict {
  bool cut_off = false;
  bool other_content = false;
  bool strict = false;
  bool stale = false;
  bool dropped() const { return cut_off || other_content || strict || stale; }
};

std::string Joined(const std::vector<std::string>& phrases) {
  std::string joined;
  for (const std::string& phrase : phrases) joined += (joined.empty() ? "" : " and ") + phrase;
  return joined;
}

// Warns of facts that ranks may see differently. Ranks that decide differently make a collective
// hang.
void WarnOfRankDependence(const TunerConfig& config, const PluginSettings& settings,
                          const RunningPlatform& running, const RuleCounts& counts,
                          const Warnings& warnings) {
  if (settings.stale_off && config.header.gpu && !running.gpu) {
    warnings.LogOnce(settings.path +
                     ": NCCLTUNE_STALE=off, but this rank has no CUDA context, so that its GPU is "
                     "not compared; if other ranks use no rule, collectives hang");
  }
  if (counts.on_registration > 0) {
    warnings.LogOnce(settings.path + ": " +
                     Count(counts.on_registration, "rule applies", "rules apply") +
                     " only to registered buffers, or only to others (column 10); if not all ranks "
                     "register theirs alike, ranks decide differently and collectives hang");
  }
}

Verdict Judge(const LoadedConfig& file, const PluginSettings& settings,
              const RunningPlatform& running, const char* driver_file, const Warnings& warnings) {
  const TunerConfig& config = file.config;
  Verdict verdict;
  if (file.empty) warnings.LogOnce(settings.path + ": the file is empty: no rules");
  verdict.cut_off = config.cut_off();
  if (verdict.cut_off) {
    warnings.LogOnce(settings.path +
                     ": the file is cut off, its last line '# nccltune: end=here' is missing: no "
                     "rule is used; other ranks may use rules, and collectives may hang");
  }
  verdict.other_content = file.has_other_content;
  if (verdict.other_content) {
    warnings.LogOnce(settings.path + ": its content is " + Hex64(config.content_hash) +
                     ", and NCCLTUNE_CONFIG_HASH=" + Quoted(settings.hash, 40) +
                     ": no rule is used; other ranks may use rules, and collectives may hang");
  }
  verdict.strict = settings.strict && config.bad_lines > 0;
  if (verdict.strict) {
    warnings.LogOnce(settings.path + ": " + Count(config.bad_lines, "bad line", "bad lines") +
                     " and NCCLTUNE_STRICT=1: no rule is used");
  }
  if (config.rules.empty()) return verdict;
  std::vector<std::string> reasons = StaleReasons(config.header, running);
  const bool stale = !reasons.empty();
  const std::string driver = OtherDriver(config.header, driver_file);
  if (!driver.empty()) reasons.push_back(driver);
  verdict.stale = stale && settings.stale_off;
  if (stale) {
    warnings.LogOnce(settings.path + ": stale rules, measured on " + Joined(reasons) +
                     (settings.stale_off ? "; NCCLTUNE_STALE=off: no rule is used; if other ranks "
                                           "have other GPUs and use rules, collectives hang"
                                         : "; they are used anyway; measure again, or disable them "
                                           "with NCCLTUNE_STALE=off"));
  } else if (!driver.empty()) {
    warnings.LogOnce(settings.path + ": rules measured on " + driver +
                     "; they are used; nccltune check shows whether they still hold");
  }
  return verdict;
}

std::string AboutThisProcess(const StartArguments& arguments, const RunningPlatform& running) {
  return "interface v" + std::to_string(arguments.interface_version) + ", NCCL " +
         (running.nccl ? ToString(*running.nccl) : std::string("unknown"));
}

std::string Dropped(const TunerConfig& config, const RuleCounts& counts, const Verdict& verdict) {
  if (verdict.cut_off) return "all, the file is cut off";
  if (verdict.other_content) return "all by NCCLTUNE_CONFIG_HASH";
  if (verdict.strict) {
    return "all by NCCLTUNE_STRICT=1, " + Count(config.bad_lines, "bad line", "bad lines");
  }
  const std::string bad_lines = Count(config.bad_lines, "bad line", "bad lines");
  if (verdict.stale) return "all as stale by NCCLTUNE_STALE=off, " + bad_lines;
  std::string dropped = std::to_string(counts.other_scale) + " other scale, " +
                        std::to_string(counts.shadowed) + " shadowed, ";
  if (counts.unknown_registration > 0) {
    dropped +=
        std::to_string(counts.unknown_registration) + " on registered buffers (passed since v4), ";
  }
  return dropped + bad_lines;
}

std::string Summary(const StartArguments& arguments, const PluginSettings& settings,
                    const RunningPlatform& running, const TunerConfig& config,
                    const Verdict& verdict, const TunerContext& communicator) {
  const RuleCounts& counts = communicator.rules.counts();
  std::string line = Printable(settings.path, 300) + " (content " + Hex64(config.content_hash) +
                     "): " + std::to_string(counts.applied) + " of " +
                     Count(config.rules.size(), "rule applies", "rules apply") + " to " +
                     Count(arguments.scale.nodes, "node", "nodes") + ", " +
                     Count(arguments.scale.ranks, "rank", "ranks") +
                     "; dropped: " + Dropped(config, counts, verdict) + "; " +
                     AboutThisProcess(arguments, running);
  if (counts.with_channels > 0 && running.nccl && *running.nccl >= NcclVersion{2, 31, 0}) {
    line += "; channels only lower NCCL's own number since NCCL 2.31";
  }
  if (counts.with_chunk > 0 && arguments.interface_version < 6) {
    line += "; chunk sizes have no effect before NCCL 2.30";
  }
  if (counts.for_pat > 0 && running.nccl && *running.nccl < NcclVersion{2, 23, 0}) {
    line += "; rules for PAT have no effect before NCCL 2.23";
  }
  if (communicator.filtered && counts.applied > 0) {
    line +=
        "; no rule is used: NCCL_ALGO or NCCL_PROTO is set, and interface v2 does not report which "
        "choices they leave";
  }
  return line;
}

bool IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

std::unique_ptr<TunerContext> StartCommunicator(const StartArguments& arguments) {
  const Log log(arguments.log, kLogSubsystems, kLogPrefix);
  const Warnings warnings(log);
  const RunningPlatform running = FindRunning(arguments.log);
  const PluginSettings settings = ReadSettings(warnings);
  auto communicator = std::make_unique<TunerContext>();
  communicator->scale = arguments.scale;
  communicator->interface_version = arguments.interface_version;
  communicator->device = running.device;
  communicator->filtered =
      arguments.interface_version == 2 && (IsSet("NCCL_ALGO") || IsSet("NCCL_PROTO"));
  if (settings.path.empty()) {
    log.Info("no rules, NCCLTUNE_CONFIG and NCCL_TUNER_CONFIG_FILE are not set; " +
             AboutThisProcess(arguments, running));
    return communicator;
  }
  const std::shared_ptr<const LoadedConfig> file = LoadConfig(settings.path, settings.hash);
  if (!file->error.empty()) {
    warnings.LogOnce(std::string(settings.path_source) + "=" + Printable(settings.path, 300) +
                     ": " + file->error + ": no rules, NCCL decides everything");
    log.Info("no rules, " + Printable(settings.path, 300) + " cannot be read; " +
             AboutThisProcess(arguments, running));
    return communicator;
  }
  const TunerConfig& config = file->config;
  LogProblems(config, Printable(settings.path, 300), warnings);
  const Verdict verdict = Judge(*file, settings, running, arguments.driver_file, warnings);
  communicator->measured_here = MeasuredHere(config.header, running);
  if (!verdict.dropped()) {
    communicator->hits = file->hits;
    communicator->rules = RuleSet(config.rules, arguments.scale,
                                  /*passes_registered=*/arguments.interface_version >= 4);
    WarnOfRankDependence(config, settings, running, communicator->rules.counts(), warnings);
  }
  log.Info(Summary(arguments, settings, running, config, verdict, *communicator));
  return communicator;
}

namespace {

// Functions of cuda.h; all return 0 on success.
using CuCtxGetDevice = int(int* device);
using CuDeviceGetName = int(char* name, int length, int device);

void FindGpu(RunningPlatform* running) {
  const SharedLibrary cuda = SharedLibrary::Loaded("libcuda.so.1");
  auto* get_device = cuda.Find<CuCtxGetDevice>("cuCtxGetDevice");
  auto* get_name = cuda.Find<CuDeviceGetName>("cuDeviceGetName");
  if (get_device == nullptr || get_name == nullptr) return;
  int device = 0;
  std::array<char, 256> name{};
  if (get_device(&device) != 0) return;
  running->device = device;
  if (get_name(name.data(), static_cast<int>(name.size()) - 1, device) != 0) return;
  running->gpu = name.data();
}

bool SameRelease(const NcclVersion& a, const NcclVersion& b) {
  return a.major == b.major && a.minor == b.minor;
}

}  // namespace

RunningPlatform FindRunning(abi::LogFunction log) {
  RunningPlatform running;
  running.nccl = LoadedNccl(reinterpret_cast<const void*>(log));
  FindGpu(&running);
  return running;
}

std::vector<std::string> StaleReasons(const ConfigHeader& header, const RunningPlatform& running) {
  std::vector<std::string> reasons;
  if (header.nccl && running.nccl && !SameRelease(*header.nccl, *running.nccl)) {
    reasons.push_back("NCCL " + ToString(*header.nccl) + " (this is " + ToString(*running.nccl) +
                      ")");
  }
  if (header.gpu && running.gpu && *header.gpu != *running.gpu) {
    reasons.push_back(Quoted(*header.gpu, 80) + " (this is " + Quoted(*running.gpu, 80) + ")");
  }
  return reasons;
}

std::string OtherDriver(const ConfigHeader& header, const char* file) {
  std::array<char, 64> text{};
  if (!header.driver) return "";
  const std::unique_ptr<FILE, int (*)(FILE*)> opened(std::fopen(file, "re"), &std::fclose);
  if (!opened || std::fgets(text.data(), text.size(), opened.get()) == nullptr) return "";
  const std::string_view running(text.data(), std::strcspn(text.data(), " \t\r\n"));
  if (running.empty() || running == *header.driver) return "";
  return "driver " + Printable(*header.driver, 40) + " (this is " + Printable(running, 40) + ")";
}

bool MeasuredHere(const ConfigHeader& header, const RunningPlatform& running) {
  return header.nccl && running.nccl && header.gpu && running.gpu &&
         StaleReasons(header, running).empty();
}

namespace {

// Hashes of the warnings that were logged. When the array is full, the oldest hash is replaced.
struct LoggedWarnings {
  std::mutex mutex;
  std::array<uint64_t, 256> hashes{};
  size_t next = 0;

  bool Add(uint64_t hash) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (std::find(hashes.begin(), hashes.end(), hash) != hashes.end()) return false;
    hashes[next++ % hashes.size()] = hash;
    return true;
  }
};
constinit LoggedWarnings logged;

}  // namespace

void Warnings::LogOnce(std::string_view text) const {
  if (!log_.silent() && logged.Add(ContentHash(text))) log_.Warn(text);
}

void ForgetWarnings() {
  const std::lock_guard<std::mutex> lock(logged.mutex);
  logged.hashes.fill(0);
  logged.next = 0;
}

}  // namespace nccltune::tuner
