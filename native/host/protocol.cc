// SPDX-License-Identifier: Apache-2.0
#include "host/protocol.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace nccltune::host {
namespace {

using json::Value;

// Parses {"tree/ll": 12.5, ...}, costs in microseconds. null and negative numbers mean "not
// usable".
std::string ParseCosts(const Value& value, const NcclRules& rules, DecisionRequest* request) {
  const Value::Object* members = value.AsObject();
  if (members == nullptr) return std::string("'costs' must be an object, not ") + value.KindName();
  request->costs.emplace();
  for (const auto& [name, member] : *members) {
    const std::optional<Combination> entry = CombinationByName(name);
    if (!entry) return "'costs': '" + name + "' is no algorithm/protocol such as tree/ll128";
    if (entry->algorithm >= rules.algorithms) {
      return "'costs': NCCL 2." + std::to_string(rules.since_minor) + " has no " + name;
    }
    double cost = abi::kIgnore;
    if (!member.IsNull() && !member.ToNumber(&cost)) {
      return "'costs': '" + name + "' must be a number, not " + member.KindName();
    }
    if (cost > std::numeric_limits<float>::max()) return "'costs': '" + name + "' is too large";
    request->costs->emplace_back(*entry, cost < 0 ? abi::kIgnore : static_cast<float>(cost));
  }
  return "";
}

std::string ParseDecide(const Value& value, const NcclRules& rules, Command* command) {
  std::string op;
  std::string collective;
  int64_t bytes = 0;
  int64_t pipe_ops = 1;
  int64_t chunk_bytes = 0;
  const Value* costs = nullptr;
  DecisionRequest& request = command->request;
  std::string problem =
      json::Fields(value)
          .Required("op", &op)
          .Required("collective", &collective)
          .Required("bytes", &bytes, 0, std::numeric_limits<int64_t>::max())
          .Optional("pipe_ops", &pipe_ops, 1, 1 << 20)
          .Optional("registered", &request.registered)
          .Optional("chunk_bytes", &chunk_bytes, 0, std::numeric_limits<int>::max())
          .Optional("costs", &costs)
          .Optional("log", &command->want_log)
          .Finish();
  if (!problem.empty()) return problem;
  const std::optional<int> number = CollectiveByName(collective);
  if (!number) return "'" + collective + "' is no collective that a tuner is asked about";
  request.collective = static_cast<abi::TunedCollective>(*number);
  request.bytes = static_cast<size_t>(bytes);
  request.pipe_ops = static_cast<int>(pipe_ops);
  request.chunk_bytes = static_cast<size_t>(chunk_bytes);
  return costs == nullptr ? "" : ParseCosts(*costs, rules, &request);
}

Value NumberOrNull(double number) { return std::isfinite(number) ? Value(number) : Value(); }

// Converts a float to a double whose shortest decimal form equals that of the float: 12.3, not
// 12.300000190734863. Returns null for infinity and NaN.
Value Cost(float cost) {
  if (!std::isfinite(cost)) return {};
  char digits[32];
  const std::to_chars_result result = std::to_chars(digits, digits + sizeof digits, cost);
  double real = cost;
  std::from_chars(digits, result.ptr, real);
  return Value(real);
}

Value CombinationValue(Combination combination) {
  if (!combination.known()) return {};
  Value value;
  value.Set("algorithm", AlgorithmName(combination.algorithm));
  value.Set("protocol", ProtocolName(combination.protocol));
  return value;
}

Value ChoiceValue(const PluginChoice& choice) {
  Value value;
  const bool known = choice.combination.known();
  value.Set("algorithm", known ? Value(AlgorithmName(choice.combination.algorithm)) : Value());
  value.Set("protocol", known ? Value(ProtocolName(choice.combination.protocol)) : Value());
  value.Set("channels", choice.channels ? Value(*choice.channels) : Value());
  value.Set("chunk_bytes",
            choice.chunk_bytes ? Value(static_cast<int64_t>(*choice.chunk_bytes)) : Value());
  return value;
}

Value WarningList(const std::vector<Warning>& warnings) {
  Value list = Value::EmptyArray();
  for (const Warning& warning : warnings) {
    Value value;
    value.Set("code", warning.code);
    value.Set("text", warning.text);
    list.Append(std::move(value));
  }
  return list;
}

Value FailureValue(const std::optional<Failure>& failure) {
  if (!failure) return {};
  Value value;
  value.Set("kind", failure->kind);
  value.Set("text", failure->text);
  return value;
}

void SetLog(const LogLines& log, bool all, Value* answer) {
  Value list = Value::EmptyArray();
  for (const LogLine& line : log.lines) {
    if (!all && line.level != abi::kLogWarn) continue;
    Value value;
    value.Set("level", LogLevelName(line.level));
    value.Set("text", line.text);
    list.Append(std::move(value));
  }
  answer->Set("log", std::move(list));
  answer->Set("log_dropped", static_cast<int64_t>(log.dropped));
}

}  // namespace

bool ParseCommand(std::string_view line, const NcclRules& rules, Command* command,
                  std::string* error) {
  Value value;
  json::Error parse_error;
  if (!json::Parse(line, &value, &parse_error)) {
    *error = "no JSON: " + parse_error.message + " at byte " + std::to_string(parse_error.offset);
    return false;
  }
  const Value* op = value.Find("op");
  const std::string* name = op == nullptr ? nullptr : op->AsString();
  if (name != nullptr && *name == "quit") {
    command->kind = Command::Kind::kQuit;
    std::string unused;
    *error = json::Fields(value).Required("op", &unused).Finish();
  } else if (name != nullptr && *name == "decide") {
    command->kind = Command::Kind::kDecide;
    *error = ParseDecide(value, rules, command);
  } else {
    *error = "'op' must be \"decide\" or \"quit\"";
  }
  return error->empty();
}

json::Value InitAnswer(const HostOptions& options, const InitReport& report,
                       const std::optional<Failure>& failure) {
  Value answer;
  answer.Set("op", "init");
  answer.Set("ok", !failure.has_value());
  answer.Set("schema_version", kSchemaVersion);
  answer.Set("tuner", options.tuner);
  answer.Set("nccl", ToString(options.nccl));
  answer.Set("nccl_known", report.rules_exact);
  answer.Set("nodes", options.platform.nodes);
  answer.Set("ranks", options.platform.ranks);
  Value exported = Value::EmptyArray();
  for (const int version : report.exported) exported.Append(version);
  answer.Set("exported", std::move(exported));
  answer.Set("interface", report.interface == 0 ? Value() : Value(report.interface));
  answer.Set("plugin", report.interface == 0 ? Value() : Value(report.plugin_name));
  answer.Set("has_chunk_size", report.has_chunk_size);
  answer.Set("channel_rule", report.channel_rule == ChannelRule::kReplaces ? "replaces" : "caps");
  Value changes = Value::EmptyArray();
  for (const ConstantChange& change : report.constants_changed) {
    Value value;
    value.Set("name", change.name);
    value.Set("before", NumberOrNull(change.before));
    value.Set("after", NumberOrNull(change.after));
    changes.Append(std::move(value));
  }
  answer.Set("constants_changed", std::move(changes));
  answer.Set("warnings", WarningList(report.warnings));
  SetLog(report.log, true, &answer);
  answer.Set("error", FailureValue(failure));
  return answer;
}

json::Value DecideAnswer(const Decision& decision, bool want_log) {
  const DecisionRequest& request = decision.request;
  Value answer;
  answer.Set("op", "decide");
  answer.Set("ok", decision.outcome != DecisionResult::kFails);
  answer.Set("collective", CollectiveName(request.collective));
  answer.Set("bytes", static_cast<int64_t>(request.bytes));
  answer.Set("pipe_ops", request.pipe_ops);
  answer.Set("registered", request.registered);
  answer.Set("costs", request.costs ? "given" : "nominal");
  Value decided;
  if (decision.outcome == DecisionResult::kDefault) decided = Value("default");
  if (decision.outcome == DecisionResult::kChosen) decided = ChoiceValue(decision.choice);
  answer.Set("decided", std::move(decided));
  answer.Set("selected", CombinationValue(decision.selected));
  answer.Set("channels_requested", decision.channels_requested);
  Value changes = Value::EmptyArray();
  for (const TableChange& change : decision.table_changed) {
    Value value = CombinationValue(change.entry);
    value.Set("before", Cost(change.before));
    value.Set("after", Cost(change.after));
    changes.Append(std::move(value));
  }
  answer.Set("table_changed", std::move(changes));
  answer.Set("warnings", WarningList(decision.warnings));
  SetLog(decision.log, want_log, &answer);
  answer.Set("error", FailureValue(decision.failure));
  return answer;
}

json::Value QuitAnswer(const std::string& problem) {
  Value answer;
  answer.Set("op", "quit");
  answer.Set("ok", problem.empty());
  answer.Set("error", problem.empty() ? Value() : FailureValue(Failure{"plugin_error", problem}));
  return answer;
}

json::Value RequestErrorAnswer(const std::string& error) {
  Value answer;
  answer.Set("op", nullptr);
  answer.Set("ok", false);
  answer.Set("error", FailureValue(Failure{"request", error}));
  return answer;
}

}  // namespace nccltune::host
