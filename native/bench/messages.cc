// SPDX-License-Identifier: Apache-2.0
#include "bench/messages.h"

#include "bench/archive_errors.h"

namespace nccltune::bench {

// The Describe functions are not in an unnamed namespace, because argument-dependent lookup from
// archive.h must find them.
template <typename Archive>
static void Describe(Archive& archive, host::Combination& combination) {
  archive(combination.algorithm, combination.protocol);
}

template <typename Archive>
static void Describe(Archive& archive, Choice& choice) {
  archive(choice.kind, choice.combination, choice.channels, choice.chunk_bytes);
}

template <typename Archive>
static void Describe(Archive& archive, Step& step) {
  archive(step.sequence, step.collective, step.bytes, step.dtype, step.redop, step.root,
          step.in_place, step.registered, step.graph, step.group_calls, step.load, step.choice,
          step.warmup, step.iterations, step.check, step.timeout_s, step.seed, step.round,
          step.repeat);
}

template <typename Archive>
static void Describe(Archive& archive, RankTiming& timing) {
  archive(timing.rank, timing.event_us, timing.host_us, timing.wrong, timing.load_alone_us,
          timing.load_us);
}

template <typename Archive>
static void Describe(Archive& archive, ExecutedChoice& ran) {
  archive(ran.combination, ran.channels, ran.chunk_bytes);
}

template <typename Archive>
static void Describe(Archive& archive, TunerInputs& seen) {
  archive(seen.pipe_ops, seen.registered);
}

template <typename Archive>
static void Describe(Archive& archive, StepResult& result) {
  archive(result.timings, result.ran, result.seen, result.applied, result.error);
}

template <typename Archive>
static void Describe(Archive& archive, TableResult& result) {
  archive(result.row.costs, result.row.predicted, result.row.seen, result.error);
}

template <typename Archive>
static void Describe(Archive& archive, GpuInfo& gpu) {
  archive(gpu.rank, gpu.name, gpu.host_hash);
}

template <typename Archive>
static void Describe(Archive& archive, OpenResult& opened) {
  BackendInfo& info = opened.info;
  archive(info.backend, info.replay, info.nccl_version, info.nccl_path, info.nccl_from, info.driver,
          info.tuner_path, info.tuner_control, info.tuner_interface, info.nodes, info.ranks,
          info.gpus, info.collectives, info.dtypes, info.redops, info.registered, info.graph,
          info.group_calls, info.load, info.chunk, opened.error);
}

template <typename Archive>
static void Describe(Archive& archive, AbortOrder& order) {
  archive(order.status, order.text);
}

namespace {

template <typename T>
std::string ToBytes(const T& value) {
  Writer writer;
  writer(value);
  return writer.Take();
}

template <typename T>
bool FromBytes(std::string_view bytes, T* value) {
  Reader reader(bytes);
  reader(*value);
  return reader.Finished();
}

}  // namespace

std::string Serialize(const Step& step) { return ToBytes(step); }
std::string Serialize(const StepResult& result) { return ToBytes(result); }
std::string Serialize(const TableResult& result) { return ToBytes(result); }
std::string Serialize(const OpenResult& opened) { return ToBytes(opened); }
std::string Serialize(const AbortOrder& order) { return ToBytes(order); }
std::string Serialize(const std::vector<std::string>& parts) { return ToBytes(parts); }

bool Read(std::string_view bytes, Step* step) { return FromBytes(bytes, step); }
bool Read(std::string_view bytes, StepResult* result) { return FromBytes(bytes, result); }
bool Read(std::string_view bytes, TableResult* result) { return FromBytes(bytes, result); }
bool Read(std::string_view bytes, OpenResult* opened) { return FromBytes(bytes, opened); }
bool Read(std::string_view bytes, AbortOrder* order) { return FromBytes(bytes, order); }
bool Read(std::string_view bytes, std::vector<std::string>* parts) {
  return FromBytes(bytes, parts);
}

}  // namespace nccltune::bench
