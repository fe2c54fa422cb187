// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>
#include <meshtorch/tensor/trace.h>

namespace meshtorch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::microseconds;
using std::chrono::nanoseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Lane = std::pair<std::int64_t, std::int64_t>;  // pid, tid

Lane lane(const Json& event) { return {event.at("pid"), event.at("tid")}; }

std::vector<Json> of_phase(const Json& file, const std::string& phase) {
  std::vector<Json> found;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == phase) found.push_back(event);
  return found;
}

Json named(const std::vector<Json>& events, const std::string& name) {
  for (const auto& event : events)
    if (event.at("name") == name) return event;
  ADD_FAILURE() << "no event " << name;
  return {};
}

// Nanoseconds, which the file has as thousandths.
std::int64_t ticks(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

// What the Trace Event Format demands of an event, by its phase; empty where it is met.
std::string fault(const Json& event) {
  const std::map<std::string, std::set<std::string>> needs{{"X", {"cat", "ts", "dur"}},
                                                           {"b", {"cat", "ts", "id", "args"}},
                                                           {"e", {"cat", "ts", "id"}},
                                                           {"C", {"ts", "args"}},
                                                           {"M", {"args"}}};
  const Json phase = event.value("ph", Json());
  const auto found = needs.find(phase.is_string() ? phase.get<std::string>() : "");
  if (found == needs.end()) return "phase of " + event.dump();
  for (const auto* key : {"pid", "tid"})
    if (!event.contains(key) || !event[key].is_number_integer())
      return text(key, " of ", event.dump());
  if (!event.contains("name") || !event["name"].is_string()) return "name of " + event.dump();
  for (const auto& key : found->second)
    if (!event.contains(key) || event[key].is_null()) return key + " of " + event.dump();
  for (const auto* key : {"ts", "dur"})
    if (event.contains(key) && (!event[key].is_number() || event[key] < 0)) return key;
  if (event.contains("args") && !event["args"].is_object()) return "args of " + event.dump();
  return "";
}

TEST(TraceFormat, FaultsAreNoticed) {
  const Json whole{{"ph", "X"}, {"name", "a"}, {"cat", "op"}, {"pid", 1},
                   {"tid", 2},  {"ts", 1.5},   {"dur", 2},    {"args", Json::object()}};
  EXPECT_EQ(fault(whole), "");
  for (const auto& [key, value] : whole.items()) {
    Json less = whole;
    less.erase(key);
    EXPECT_EQ(fault(less).empty(), key == "args") << key;
    less[key] = nullptr;
    EXPECT_NE(fault(less), "") << key;
  }
}

void expect_counters(const Json& file) {
  std::map<std::pair<std::int64_t, std::string>, std::set<std::string>> series;
  for (const auto& event : of_phase(file, "C")) {
    std::set<std::string> names;
    for (const auto& [name, value] : event["args"].items()) {
      EXPECT_TRUE(value.is_number()) << event;
      names.insert(name);
    }
    const auto known = series.emplace(std::pair(event["pid"], event["name"]), names).first;
    EXPECT_EQ(names, known->second) << "a counter has the same series at all times";
  }
}

void expect_pairs(const Json& file) {
  std::map<std::string, Json> begun;
  for (const auto& event : file.at("traceEvents")) {
    if (event["ph"] == "b") {
      EXPECT_TRUE(begun.emplace(event["id"], event).second) << event;
    }
    if (event["ph"] != "e") continue;
    ASSERT_TRUE(begun.contains(event["id"])) << event << " ends what has not begun";
    for (const auto* key : {"name", "cat", "pid"}) EXPECT_EQ(event[key], begun[event["id"]][key]);
    begun.erase(event["id"]);
  }
  EXPECT_THAT(begun, IsEmpty());
}

void expect_nested(const Json& file) {
  std::map<Lane, std::vector<std::int64_t>> open;
  for (const auto& event : of_phase(file, "X")) {
    const std::int64_t begin = ticks(event["ts"]);
    const std::int64_t end = begin + ticks(event["dur"]);
    auto& ends = open[lane(event)];
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();
    if (!ends.empty()) {
      EXPECT_LE(end, ends.back()) << event << " is not inside of what it is in";
    }
    ends.push_back(end);
  }
}

void expect_lanes_have_names(const Json& file) {
  std::set<Lane> threads, sorted;
  std::set<std::int64_t> processes, numbers;
  for (const auto& event : of_phase(file, "M")) {
    if (event["name"] == "process_name") processes.insert(lane(event).first);
    if (event["name"] == "thread_sort_index") sorted.insert(lane(event));
    if (event["name"] != "thread_name") continue;
    EXPECT_TRUE(threads.insert(lane(event)).second) << event;
    EXPECT_TRUE(numbers.insert(lane(event).second).second) << event << ", not only in its process";
  }
  EXPECT_EQ(threads, sorted);
  for (const auto& event : file.at("traceEvents")) {
    EXPECT_TRUE(threads.contains(lane(event)) || event["ph"] == "M") << event;
    EXPECT_TRUE(processes.contains(lane(event).first)) << event;
    EXPECT_GT(event["pid"], 0);
    EXPECT_GT(event["tid"], 0);
  }
}

void expect_format(const Json& file, bool by_time = true) {
  ASSERT_TRUE(file.is_object());
  EXPECT_EQ(file.at("displayTimeUnit"), "ms");
  double last = 0;
  for (const auto& event : file.at("traceEvents")) {
    ASSERT_EQ(fault(event), "");
    const double when = event.value("ts", last);
    if (by_time) {
      EXPECT_GE(when, last) << event;
    }
    last = when;
  }
  expect_counters(file);
  expect_pairs(file);
  expect_nested(file);
  expect_lanes_have_names(file);
}

Json read(const std::string& path) { return Json::parse(std::ifstream(path)); }

class TraceTest : public testing::Test {
 protected:
  TraceTest() {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~TraceTest() override { fs::remove_all(folder); }

  // What a viewer would be given.
  Json file() const {
    Json json = Json::parse(trace.to_json());
    expect_format(json);
    return json;
  }

  Trace::Time at(double us) const {
    return zero + nanoseconds(static_cast<std::int64_t>(us * 1000));
  }

  // Names of all lanes in the order that viewers show.
  static std::vector<std::string> lanes(const Json& file) {
    std::map<std::int64_t, std::string> names, sorted;
    for (const auto& event : of_phase(file, "M")) {
      if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
      if (event["name"] == "thread_sort_index")
        sorted[event["args"]["sort_index"]] = names.at(event["tid"]);
    }
    std::vector<std::string> out;
    for (const auto& [index, name] : sorted) out.push_back(name);
    return out;
  }

  std::string folder = testing::TempDir() + "meshtorch_" +
                       testing::UnitTest::GetInstance()->current_test_info()->name();
  Trace trace{{.max_events = 100}};
  Trace::Time zero = Trace::Clock::now();
};

std::string lane_name(const Json& file, const Json& event) {
  for (const auto& metadata : of_phase(file, "M"))
    if (metadata["name"] == "thread_name" && lane(metadata) == lane(event))
      return metadata["args"]["name"];
  return "";
}

TEST_F(TraceTest, IsTheActiveOneWhileItLives) {
  EXPECT_EQ(Trace::active(), &trace);
  EXPECT_EQ(message([] { Trace second; }),
            "[Trace] there is one already; end it first: one records at a time");
  EXPECT_EQ(Trace::active(), &trace) << "the refused one left it as it was";
}

TEST(TraceLife, NoneIsActiveBeforeAndAfter) {
  EXPECT_EQ(Trace::active(), nullptr);
  { Trace trace; }
  EXPECT_EQ(Trace::active(), nullptr);
  Trace next;
  EXPECT_EQ(Trace::active(), &next);
}

TEST_F(TraceTest, AnEmptyOneHasTheProgramsLane) {
  const Json json = file();
  EXPECT_THAT(lanes(json), ElementsAre("program"));
  EXPECT_EQ(named(of_phase(json, "M"), "process_name")["args"]["name"], "process 0");
}

TEST_F(TraceTest, OpsAreOnTheLaneOfTheirDevice) {
  trace.op("aten::mm", 3, at(10), at(14.5));
  trace.op("aten::relu", 0, at(20), at(20.001));
  const Json json = file();
  EXPECT_THAT(lanes(json), ElementsAre("program", "device 0", "device 3"));

  const auto slices = of_phase(json, "X");
  const Json mm = named(slices, "aten::mm");
  EXPECT_EQ(lane_name(json, mm), "device 3");
  EXPECT_EQ(mm["cat"], "op");
  EXPECT_EQ(mm["dur"], 4.5);
  const Json relu = named(slices, "aten::relu");
  EXPECT_EQ(lane_name(json, relu), "device 0");
  EXPECT_EQ(ticks(relu["dur"]), 1);
  EXPECT_EQ(ticks(relu["ts"]) - ticks(mm["ts"]), 10000);
}

TEST_F(TraceTest, TimeIsThatOfTheSteadyClock) {
  trace.scope("step", at(0), at(1));
  EXPECT_EQ(ticks(of_phase(file(), "X").at(0)["ts"]),
            std::chrono::duration_cast<nanoseconds>(zero.time_since_epoch()).count());
}

TEST_F(TraceTest, ScopesNestOnTheProgramsLane) {
  trace.scope("forward", at(1), at(4));  // recorded as they end
  trace.scope("backward", at(4), at(9));
  trace.scope("step", at(0), at(10));
  const Json json = file();
  EXPECT_THAT(lanes(json), ElementsAre("program"));
  std::vector<std::string> order;
  for (const auto& slice : of_phase(json, "X")) order.push_back(slice["name"]);
  EXPECT_THAT(order, ElementsAre("step", "forward", "backward"));
}

TEST_F(TraceTest, OfEqualScopesTheOuterComesFirst) {
  trace.scope("inner", at(0), at(10));
  trace.scope("outer", at(0), at(10));
  const auto slices = of_phase(file(), "X");
  EXPECT_EQ(slices.at(0)["name"], "outer");
  EXPECT_EQ(slices.at(1)["name"], "inner");
}

TEST_F(TraceTest, CollectivesInFlightAtATimeAndWhatWasWaited) {
  const auto gather = trace.collective_begin("all_gather", "dp", 1024, 3, "step/gather", at(1));
  const auto reduce = trace.collective_begin("all_reduce", "dp+tp", 64, 1, "step/backward", at(2));
  ASSERT_NE(gather, reduce);
  trace.collective_end(gather, at(6));
  trace.waited(reduce, at(7), at(8));
  trace.waited(reduce, at(8.5), at(9));
  trace.collective_end(reduce, at(9));

  const Json json = file();
  const auto begun = of_phase(json, "b");
  const auto ended = of_phase(json, "e");
  const Json first = named(begun, "all_gather over dp");
  EXPECT_EQ(first["args"], (Json{{"axes", "dp"},
                                 {"bytes", 1024},
                                 {"tensors", 3},
                                 {"scope", "step/gather"},
                                 {"waited_us", 0.0}}));
  EXPECT_EQ(ticks(named(ended, "all_gather over dp")["ts"]) - ticks(first["ts"]), 5000);
  const Json second = named(begun, "all_reduce over dp+tp");
  EXPECT_EQ(second["args"]["waited_us"], 1.5);

  const auto waits = of_phase(json, "X");
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0]["name"], "wait for all_reduce over dp+tp");
  EXPECT_EQ(waits[0]["cat"], "wait");
  EXPECT_EQ(lane_name(json, waits[0]), "program");
  EXPECT_EQ(waits[0]["args"]["collective"], second["id"]);
  EXPECT_EQ(waits[1]["dur"], 0.5);
}

TEST_F(TraceTest, ACollectiveThatIsNotDoneEndsWithTheFile) {
  trace.collective_begin("all_gather", "dp", 8, 1, "", at(1));
  trace.op("aten::mm", 0, at(2), at(5));
  const Json json = file();
  EXPECT_EQ(of_phase(json, "b").at(0)["args"]["unfinished"], true);
  EXPECT_EQ(ticks(of_phase(json, "e").at(0)["ts"]) - ticks(of_phase(json, "b").at(0)["ts"]), 4000);
}

TEST_F(TraceTest, NumbersOfCollectivesItDoesNotKnowDoNothing) {
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 62}) {
    trace.collective_end(id);
    trace.waited(id, at(0), at(1));
  }
  EXPECT_EQ(trace.events(), 0u);
}

TEST(TraceLife, NumbersOfAnotherTraceAreNotItsOwn) {
  std::int64_t old = 0;
  {
    Trace trace;
    old = trace.collective_begin("all_gather", "dp", 8, 1, "");
  }
  Trace trace;
  const auto now = trace.collective_begin("all_reduce", "dp", 8, 1, "");
  EXPECT_NE(now, old);
  trace.waited(old, Trace::Clock::now(), Trace::Clock::now());
  EXPECT_EQ(trace.events(), 1u);
}

TEST_F(TraceTest, MemoryIsACounterOfEachDevice) {
  trace.memory(0, {{"parameters", 100}}, at(1));
  trace.memory(1, {{"parameters", 50}}, at(2));
  trace.memory(0, {{"parameters", 100}, {"activations", 7}}, at(3));
  const auto samples = of_phase(file(), "C");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0]["name"], "memory of device 0 (bytes)");
  EXPECT_EQ(samples[0]["args"], (Json{{"parameters", 100}, {"activations", 0}}));
  EXPECT_EQ(samples[1]["name"], "memory of device 1 (bytes)");
  EXPECT_EQ(samples[1]["args"], (Json{{"parameters", 50}}));
  EXPECT_EQ(samples[2]["args"], (Json{{"parameters", 100}, {"activations", 7}}));
}

TEST_F(TraceTest, WhatDoesNotNestIsOnAFurtherLane) {
  trace.op("a", 2, at(0), at(10));
  trace.op("b", 2, at(5), at(15));
  trace.op("c", 2, at(6), at(8));
  trace.op("d", 2, at(10), at(12));
  const Json json = file();
  EXPECT_THAT(lanes(json), ElementsAre("program", "device 2", "device 2 (2)"));
  std::map<std::string, std::string> where;
  for (const auto& slice : of_phase(json, "X")) where[slice["name"]] = lane_name(json, slice);
  EXPECT_EQ(where,
            (std::map<std::string, std::string>{
                {"a", "device 2"}, {"b", "device 2 (2)"}, {"c", "device 2"}, {"d", "device 2"}}));
}

TEST_F(TraceTest, WhatBeganBeforeItBeginsWithIt) {
  trace.scope("epoch", Trace::Time{}, at(5));
  trace.op("aten::mm", 0, at(1), at(2));
  const auto slices = of_phase(file(), "X");
  EXPECT_EQ(slices.at(0)["name"], "epoch");
  EXPECT_GT(ticks(slices.at(0)["dur"]), 5000);
  EXPECT_LT(ticks(slices.at(0)["dur"]), 60'000'000'000) << "not since the machine started";
}

TEST_F(TraceTest, TextIsEscaped) {
  const std::string odd = "quote\" back\\slash \n\t\x01 \xc3\xa9 </script>";
  trace.scope(odd, at(0), at(1));
  trace.op("not UTF-8: \xff", 0, at(0), at(1));
  trace.memory(0, {{odd, 1}}, at(2));
  trace.collective_begin(odd, odd, 1, 1, odd, at(3));
  const Json json = file();
  named(of_phase(json, "X"), odd);
  named(of_phase(json, "X"), "not UTF-8: \xef\xbf\xbd");
  EXPECT_EQ(of_phase(json, "b").at(0)["args"]["scope"], odd);
  EXPECT_EQ(of_phase(json, "C").at(0)["args"], (Json{{odd, 1}}));
}

TEST_F(TraceTest, ABoundOnEventsIsToldInTheFile) {
  const auto id = trace.collective_begin("all_gather", "dp", 8, 1, "", at(0));
  for (int i = 0; i < 103; ++i) trace.op("aten::add", 0, at(i), at(i + 1));
  EXPECT_EQ(trace.events(), 100u);
  EXPECT_EQ(trace.dropped(), 4u);
  EXPECT_EQ(trace.collective_begin("all_gather", "dp", 8, 1, ""), -1);
  trace.waited(id, at(200), at(203));
  trace.collective_end(id, at(204));

  const Json json = file();
  EXPECT_EQ(of_phase(json, "X").size(), 99u);
  EXPECT_EQ(json["otherData"]["dropped_events"], 6);
  EXPECT_EQ(named(of_phase(json, "M"), "process_labels")["args"]["labels"],
            "cut: 6 events beyond max_events");
  EXPECT_FALSE(of_phase(json, "b").at(0)["args"].contains("unfinished")) << "its end is no event";
  EXPECT_EQ(of_phase(json, "b").at(0)["args"]["waited_us"], 3.0);
}

TEST_F(TraceTest, ThreadsRecordAtATime) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        const auto begin = Trace::Clock::now();
        const auto id = trace.collective_begin("all_reduce", "dp", 8, 1, "");
        trace.waited(id, begin, Trace::Clock::now());
        trace.collective_end(id);
        trace.op("aten::mm", 0, begin, Trace::Clock::now());
      }
    });
  for (auto& thread : threads) thread.join();
  const Json json = file();
  EXPECT_EQ(of_phase(json, "b").size(), 20u);
  EXPECT_EQ(of_phase(json, "X").size(), 40u);
}

TEST_F(TraceTest, IsSavedWholeInAFolderItMakes) {
  trace.op("aten::mm", 0, at(0), at(1));
  const std::string path = folder + "/runs/trace.json";
  EXPECT_EQ(trace.save(path), path);
  EXPECT_EQ(trace.save(path), path) << "over the older one";
  EXPECT_EQ(read(path), file());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder + "/runs"))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, ElementsAre("trace.json"));
}

TEST_F(TraceTest, APathThatCannotBeWrittenIsAnError) {
  std::ofstream(folder + "/plain") << "a file";
  const std::string path = folder + "/plain/trace.json";
  EXPECT_EQ(message([&] { trace.save(path); }),
            "[Trace] " + path +
                ": cannot write the file; check that its folder is writable and that no folder "
                "has its name");
  EXPECT_THAT(message([&] { trace.save(folder); }), HasSubstr("cannot write the file"));
  EXPECT_TRUE(fs::is_directory(folder));
  EXPECT_FALSE(fs::exists(folder + ".tmp-" + std::to_string(::getpid())));
}

TEST_F(TraceTest, WhatIsNoTraceIsNotMerged) {
  std::ofstream(folder + "/trace.0.json") << "[1, 2]";
  EXPECT_EQ(message([&] { merge_traces(folder + "/trace.json", 2); }),
            "[merge_traces] " + folder + "/trace.0.json: not a trace; let every process save(\"" +
                folder + "/trace.json\") first");
  trace.save(folder + "/trace.0.json");
  EXPECT_THAT(message([&] { merge_traces(folder + "/trace.json", 2); }),
              HasSubstr("trace.1.json: not a trace"));
}

// As one process and, from tests/CMakeLists.txt, as several.
TEST(TraceOfProcesses, SavesAFileForEachAndMerges) {
  const std::string folder = testing::TempDir() + "meshtorch_trace_of_processes";
  Runtime runtime({.devices = 2});
  const Mesh mesh = runtime.make_mesh({{"dp", 2 * runtime.processes()}});
  const auto meet = [&] { return full(device_put(torch::ones(8), {mesh, P("dp")})).sum(); };
  meet();
  std::string saved;
  {
    Trace trace;
    const auto begin = Trace::Clock::now();
    for (const std::int64_t local : {0, 1})
      trace.op("aten::mm", 2 * runtime.process() + local, begin, begin + microseconds(3));
    trace.collective_end(trace.collective_begin("all_gather", "dp", 8, 1, ""));
    trace.scope("step", begin, begin + microseconds(5));
    saved = trace.save(folder + "/trace.json");
  }
  expect_format(read(saved));
  meet();
  if (runtime.process() == 0) {
    merge_traces(folder + "/trace.json", runtime.processes());
    const Json whole = read(folder + "/trace.json");
    expect_format(whole, false);
    std::set<std::string> devices;
    for (const auto& slice : of_phase(whole, "X"))
      if (slice["cat"] == "op") devices.insert(lane_name(whole, slice));
    std::set<std::string> all;
    for (int device = 0; device < 2 * runtime.processes(); ++device)
      all.insert(text("device ", device));
    EXPECT_EQ(devices, all);
    EXPECT_EQ(whole["otherData"]["processes"], runtime.processes());
    EXPECT_EQ(of_phase(whole, "b").size(), static_cast<std::size_t>(runtime.processes()));
  }
  meet();
  if (runtime.process() == 0) fs::remove_all(folder);
}

}  // namespace
}  // namespace meshtorch
