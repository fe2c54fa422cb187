// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/trace.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/trace_file.h>

namespace meshtorch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::atomic<std::int64_t> next_collective{1};

std::string path_of(const std::string& path, int process, int processes) {
  if (processes == 1) return path;
  const fs::path whole(path);
  fs::path name = whole.stem();
  name += text(".", process, whole.extension().string());
  return (whole.parent_path() / name).string();
}

void write_whole(const char* op, const std::string& path, const std::string& contents) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  const std::string temporary = text(path, ".tmp-", ::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << contents;
  file.close();
  if (file) fs::rename(temporary, path, error);
  if (file && !error) return;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  fail({op, path, "cannot write the file",
        "check that its folder is writable and that no folder has its name"});
}

Json read_trace(const std::string& from, const std::string& saved) {
  std::ifstream file(from, std::ios::binary);
  Json part = Json::parse(file, nullptr, false);
  if (part.is_object() && part.contains("otherData") && part["otherData"].is_object() &&
      part.contains("traceEvents") && part["traceEvents"].is_array())
    return part;
  fail({"merge_traces", from, "not a trace", "let every process save(\"" + saved + "\") first"});
}

}  // namespace

struct Trace::Records {
  // Whether one more is kept.
  bool take() {
    if (events.size() < max_events) return true;
    ++events.dropped;
    return false;
  }

  TraceCollective* find(std::int64_t id) {
    const auto index = static_cast<std::uint64_t>(id) - static_cast<std::uint64_t>(events.first_id);
    return index < events.collectives.size() ? &events.collectives[index] : nullptr;
  }

  void slice(const std::string& name, const char* category, std::int64_t lane, Time begin, Time end,
             std::optional<std::int64_t> collective = {}) {
    begin = std::max(begin, started);
    events.slices.push_back({name, category, lane, begin, std::max(begin, end), collective});
  }

  mutable std::mutex mutex;
  std::size_t max_events = 0;
  Time started = Clock::now();
  TraceEvents events;
};

Trace::Trace(TraceOptions options) : records_(std::make_unique<Records>()) {
  records_->max_events = options.max_events;
  records_->events.first_id = next_collective;
  if (const Runtime* runtime = Runtime::find()) {
    records_->events.process = runtime->process();
    records_->events.processes = runtime->processes();
  }
  Trace* none = nullptr;
  if (!active_.compare_exchange_strong(none, this))
    fail({"Trace", "", "there is one already", "end it first: one records at a time"});
}

Trace::~Trace() { active_ = nullptr; }

void Trace::op(const std::string& name, std::int64_t device, Time begin, Time end) {
  const std::lock_guard lock(records_->mutex);
  if (records_->take()) records_->slice(name, "op", device, begin, end);
}

void Trace::scope(const std::string& name, Time begin, Time end) {
  const std::lock_guard lock(records_->mutex);
  if (records_->take()) records_->slice(name, "scope", kProgramLane, begin, end);
}

std::int64_t Trace::collective_begin(const std::string& what, const std::string& axes,
                                     std::int64_t bytes, int tensors, const std::string& scope,
                                     Time when) {
  const std::lock_guard lock(records_->mutex);
  if (!records_->take()) return -1;
  TraceEvents& events = records_->events;
  const auto id = events.first_id + static_cast<std::int64_t>(events.collectives.size());
  next_collective = id + 1;
  events.collectives.push_back({.what = what,
                                .axes = axes,
                                .scope = scope,
                                .bytes = bytes,
                                .tensors = tensors,
                                .begin = std::max(when, records_->started),
                                .end = {},
                                .waited = {}});
  return id;
}

void Trace::collective_end(std::int64_t id, Time when) {
  const std::lock_guard lock(records_->mutex);
  if (auto* collective = records_->find(id)) collective->end = std::max(when, collective->begin);
}

void Trace::waited(std::int64_t id, Time begin, Time end) {
  const std::lock_guard lock(records_->mutex);
  auto* collective = records_->find(id);
  if (collective == nullptr) return;
  collective->waited += std::max(end - begin, Clock::duration::zero());
  if (records_->take())
    records_->slice("wait for " + collective->name(), "wait", kProgramLane, begin, end, id);
}

void Trace::memory(std::int64_t device,
                   const std::vector<std::pair<std::string, std::int64_t>>& bytes_by_use,
                   Time when) {
  const std::lock_guard lock(records_->mutex);
  if (records_->take())
    records_->events.samples.push_back({device, std::max(when, records_->started), bytes_by_use});
}

std::size_t Trace::events() const {
  const std::lock_guard lock(records_->mutex);
  return records_->events.size();
}

std::size_t Trace::dropped() const {
  const std::lock_guard lock(records_->mutex);
  return records_->events.dropped;
}

std::string Trace::to_json() const {
  const std::lock_guard lock(records_->mutex);
  return trace_json(records_->events);
}

std::string Trace::save(const std::string& path) const {
  const auto& events = records_->events;
  const std::string whole = path_of(path, events.process, events.processes);
  write_whole("Trace", whole, to_json());
  return whole;
}

void merge_traces(const std::string& path, int processes) {
  if (processes < 1) {
    fail({.op = "merge_traces",
          .where = "processes",
          .what = text("got ", processes, ", expected at least 1"),
          .remedy = "give the number of processes that saved"});
  }
  std::string events;
  std::uint64_t dropped = 0;
  for (int process = 0; process < processes; ++process) {
    const Json part = read_trace(path_of(path, process, processes), path);
    dropped += part["otherData"].value("dropped_events", std::uint64_t{0});
    for (const auto& event : part["traceEvents"])
      events += (events.empty() ? "" : kTraceSeparator) + event.dump();
  }
  const Json about{
      {"producer", "meshtorch"}, {"processes", processes}, {"dropped_events", dropped}};
  write_whole("merge_traces", path, trace_file(about.dump(), events));
}

}  // namespace meshtorch
