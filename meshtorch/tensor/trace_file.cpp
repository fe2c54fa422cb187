// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/trace_file.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using Json = nlohmann::ordered_json;
using Time = Trace::Time;

// Perfetto hides process 0 and thread 0 as the idle ones, takes the thread whose number is its process's
// for the main one, and names threads by their number alone, whichever their process. So processes count
// from 1, the program's lane has its process's number, and no two lanes of any processes have one.
constexpr std::int64_t kDevices = 100'000;
constexpr std::int64_t kFurther = 1'000'000;
constexpr std::int64_t kSortDevice = 1000;

double microseconds(Trace::Clock::duration duration) {
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()) /
         1000;
}

// Where a slice is drawn: further ones of a lane hold what does not nest on the first.
struct Row {
  std::int64_t lane;
  std::int64_t further;
  auto operator<=>(const Row&) const = default;
};

class Writer {
 public:
  explicit Writer(const TraceEvents& events) : events_(events), pid_(events.process + 1) {}

  std::string write() {
    rows_.insert({kProgramLane, 0});
    write_slices();
    write_collectives();
    write_samples();
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const Line& a, const Line& b) { return a.when < b.when; });
    return file();
  }

 private:
  struct Line {
    Time when;
    std::string json;
  };

  std::int64_t tid(Row row) const {
    const std::int64_t first = row.lane == kProgramLane ? pid_ : kDevices + row.lane;
    return first + row.further * kFurther;
  }

  static std::string text_of(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  // The events of one moment stay in the order they are added in.
  void add(const char* phase, const std::string& name, const char* category, Row row, Time when,
           Json more) {
    Json event{{"ph", phase}, {"name", name}, {"cat", category}, {"pid", pid_}};
    event["tid"] = tid(row);
    event["ts"] = microseconds(when.time_since_epoch());
    event.update(more);
    lines_.push_back({when, text_of(event)});
  }

  void write_slices() {
    std::vector<const TraceSlice*> sorted;
    for (const auto& slice : events_.slices) sorted.push_back(&slice);
    // Of two of one extent the inner one was recorded first.
    std::reverse(sorted.begin(), sorted.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
      return std::tie(a->begin, b->end) < std::tie(b->begin, a->end);
    });
    for (const auto* slice : sorted) write(*slice);
  }

  void write(const TraceSlice& slice) {
    const Row row = place(slice);
    rows_.insert(row);
    Json more{{"dur", microseconds(slice.end - slice.begin)}};
    if (slice.collective) more["args"] = {{"collective", id(*slice.collective)}};
    add("X", slice.name, slice.category, row, slice.begin, std::move(more));
  }

  // Slices come by their begin, the longest first.
  Row place(const TraceSlice& slice) {
    auto& further = open_[slice.lane];
    for (std::size_t i = 0;; ++i) {
      if (i == further.size()) further.emplace_back();
      auto& ends = further[i];
      while (!ends.empty() && ends.back() <= slice.begin) ends.pop_back();
      if (!ends.empty() && ends.back() < slice.end) continue;
      ends.push_back(slice.end);
      return {slice.lane, static_cast<std::int64_t>(i)};
    }
  }

  // Numbers of collectives are a process's own; viewers compare them over all.
  std::string id(std::int64_t number) const { return text(pid_, ".", number); }

  void write_collectives() {
    const Time last = last_time();
    std::vector<std::pair<Time, std::size_t>> ends;
    for (std::size_t i = 0; i < events_.collectives.size(); ++i) {
      const auto& collective = events_.collectives[i];
      add_end("b", i, collective.begin, arguments(collective));
      ends.emplace_back(collective.end.value_or(last), i);
    }
    for (const auto& [when, i] : ends) add_end("e", i, when, Json::object());
  }

  void add_end(const char* phase, std::size_t index, Time when, Json arguments) {
    add(phase, events_.collectives[index].name(), "collective", {kProgramLane, 0}, when,
        {{"id", id(events_.first_id + static_cast<std::int64_t>(index))},
         {"args", std::move(arguments)}});
  }

  static Json arguments(const TraceCollective& collective) {
    Json arguments{{"axes", collective.axes},
                   {"bytes", collective.bytes},
                   {"tensors", collective.tensors},
                   {"scope", collective.scope},
                   {"waited_us", microseconds(collective.waited)}};
    if (!collective.end) arguments["unfinished"] = true;
    return arguments;
  }

  Time last_time() const {
    Time last{};
    for (const auto& slice : events_.slices) last = std::max(last, slice.end);
    for (const auto& sample : events_.samples) last = std::max(last, sample.when);
    for (const auto& collective : events_.collectives)
      last = std::max(last, collective.end.value_or(collective.begin));
    return last;
  }

  // A counter that has a series in some samples only is drawn wrong: each sample names them all.
  void write_samples() {
    std::map<std::int64_t, std::vector<std::string>> uses;
    for (const auto& sample : events_.samples) {
      auto& known = uses[sample.device];
      for (const auto& [use, bytes] : sample.bytes_by_use)
        if (std::find(known.begin(), known.end(), use) == known.end()) known.push_back(use);
    }
    for (const auto& sample : events_.samples) {
      Json values = Json::object();
      for (const auto& use : uses[sample.device]) values[use] = 0;
      for (const auto& [use, bytes] : sample.bytes_by_use) values[use] = bytes;
      add("C", text("memory of device ", sample.device, " (bytes)"), "memory", {kProgramLane, 0},
          sample.when, {{"args", std::move(values)}});
    }
  }

  std::string metadata(const char* name, std::int64_t tid, const char* key, Json value) const {
    return text_of(
        {{"ph", "M"}, {"name", name}, {"pid", pid_}, {"tid", tid}, {"args", {{key, value}}}});
  }

  std::vector<std::string> all_metadata() const {
    std::vector<std::string> lines{
        metadata("process_name", pid_, "name", text("process ", events_.process)),
        metadata("process_sort_index", pid_, "sort_index", events_.process)};
    if (events_.dropped > 0)
      lines.push_back(metadata("process_labels", pid_, "labels",
                               text("cut: ", events_.dropped, " events beyond max_events")));
    for (const Row& row : rows_) {
      std::string name = row.lane == kProgramLane ? "program" : text("device ", row.lane);
      if (row.further > 0) name += text(" (", row.further + 1, ")");
      lines.push_back(metadata("thread_name", tid(row), "name", name));
      lines.push_back(metadata("thread_sort_index", tid(row), "sort_index",
                               (row.lane + 1) * kSortDevice + row.further));
    }
    return lines;
  }

  std::string file() const {
    const Json about{{"producer", "meshtorch"},
                     {"process", events_.process},
                     {"processes", events_.processes},
                     {"dropped_events", events_.dropped}};
    std::string events = join(all_metadata(), kTraceSeparator);
    for (const auto& line : lines_) events += kTraceSeparator + line.json;
    return trace_file(text_of(about), events);
  }

  const TraceEvents& events_;
  const std::int64_t pid_;
  std::map<std::int64_t, std::vector<std::vector<Time>>> open_;  // ends of open slices, by row
  std::set<Row> rows_;
  std::vector<Line> lines_;
};

}  // namespace

std::string trace_file(const std::string& about, const std::string& events) {
  return "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + about + ",\n\"traceEvents\":[\n" +
         events + "\n]}\n";
}

std::string trace_json(const TraceEvents& events) { return Writer(events).write(); }

}  // namespace meshtorch
