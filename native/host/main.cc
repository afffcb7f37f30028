// SPDX-License-Identifier: Apache-2.0
// nccltune-host: asks any tuner plugin for its decisions under a given NCCL version.
//
// The files of this folder:
//   cost_table         NCCL's cost table, and the combination that NCCL picks from it
//   decision           a request to a plugin, and NCCL's decision about its answer
//   guarded            memory for a plugin, with guard bytes around it
//   line_channel       private copies of standard input and output
//   model_constants    NCCL's default constants of the cost model, and those a plugin has changed
//   nccl_rules         NCCL's names and numbers, and how each version treats a plugin
//   nccl_stand_in      the exported ncclGetVersion
//   plugin_log         stores the lines that plugins log
//   program_options    the command line
//   protocol           parses requests and builds answers in JSON
//   tuner_host         calls one plugin as NCCL does for one communicator
//   tuner_interface    a plugin's shared object, and one class for all interface versions
//   net/               nccltune-net-host, the host for net plugins
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "host/line_channel.h"
#include "host/plugin_log.h"
#include "host/program_options.h"
#include "host/protocol.h"
#include "host/tuner_host.h"

namespace nccltune::host {
namespace {

constexpr int kOk = 0;
constexpr int kUsage = 2;
constexpr int kCannotRun = 3;
constexpr int kPluginFailed = 4;

int ListSymbols(const std::string& tuner, LineChannel* channel) {
  std::string error;
  const SharedLibrary library = SharedLibrary::Open(tuner, &error);
  json::Value answer;
  answer.Set("op", "list_symbols");
  answer.Set("schema_version", kSchemaVersion);
  answer.Set("tuner", tuner);
  json::Value exported = json::Value::EmptyArray();
  if (library) {
    for (const int version : InterfacesOf(library)) exported.Append(version);
  }
  const bool any = !exported.AsArray()->empty();
  answer.Set("exported", std::move(exported));
  json::Value failure;
  if (!library) {
    failure.Set("kind", "load");
    failure.Set("text", "cannot be opened: " + error);
  } else if (!any) {
    failure.Set("kind", "no_interface");
    failure.Set("text", "exports no tuner interface");
  }
  answer.Set("ok", failure.IsNull());
  answer.Set("error", std::move(failure));
  channel->WriteLine(json::Write(answer));
  return any ? kOk : kCannotRun;
}

int ServeRequests(TunerHost* host, LineChannel* channel) {
  std::string line;
  for (;;) {
    const LineBuffer::Result result = channel->ReadLine(&line);
    if (result == LineBuffer::Result::kEnd) return kOk;
    Command command;
    std::string error = "the line is longer than a mebibyte";
    json::Value answer;
    if (result == LineBuffer::Result::kTooLong ||
        !ParseCommand(line, host->rules(), &command, &error)) {
      answer = RequestErrorAnswer(error);
    } else if (command.kind == Command::Kind::kQuit) {
      channel->WriteLine(json::Write(QuitAnswer(host->Finish())));
      return kOk;
    } else {
      answer = DecideAnswer(host->Decide(command.request), command.want_log);
    }
    if (!channel->WriteLine(json::Write(answer))) return kCannotRun;
  }
}

int Run(const ProgramOptions& options) {
  LineChannel channel;
  if (!channel.ok()) {
    std::fputs("error: standard input or output is closed\n", stderr);
    return kCannotRun;
  }
  plugin_log::SetEcho(options.verbose);
  if (options.list_symbols) return ListSymbols(options.host.tuner, &channel);
  InitReport report;
  Failure failure;
  const std::unique_ptr<TunerHost> host = TunerHost::Start(options.host, &report, &failure);
  const std::optional<Failure> why =
      host == nullptr ? std::optional<Failure>(failure) : std::nullopt;
  channel.WriteLine(json::Write(InitAnswer(options.host, report, why)));
  if (host == nullptr) return failure.kind == "init" ? kPluginFailed : kCannotRun;
  return ServeRequests(host.get(), &channel);
}

int Main(const std::vector<std::string_view>& arguments) {
  ProgramOptions options;
  std::string error;
  if (!ParseProgramOptions(arguments, &options, &error)) {
    std::fprintf(stderr, "error: %s\nhint:  nccltune-host --help lists the options\n",
                 error.c_str());
    return kUsage;
  }
  if (options.help) {
    const std::string_view help = HelpText();
    std::fwrite(help.data(), 1, help.size(), stdout);
    return kOk;
  }
  return Run(options);
}

}  // namespace
}  // namespace nccltune::host

int main(int argc, char** argv) {
  return nccltune::host::Main(std::vector<std::string_view>(argv + 1, argv + argc));
}
