// SPDX-License-Identifier: Apache-2.0
//
// For trace.cpp: a trace's records, and their text in the Trace Event Format
// (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/tensor/trace.h>

namespace meshtorch {

constexpr std::int64_t kProgramLane = -1;  // the others are devices

struct TraceSlice {
  std::string name;
  const char* category;
  std::int64_t lane;
  Trace::Time begin, end;
  std::optional<std::int64_t> collective;  // waited for
};

struct TraceCollective {
  std::string what, axes, scope;
  std::int64_t bytes = 0;
  int tensors = 1;
  Trace::Time begin;
  std::optional<Trace::Time> end;
  Trace::Clock::duration waited{};

  std::string name() const { return axes.empty() ? what : what + " over " + axes; }
};

struct TraceSample {
  std::int64_t device;
  Trace::Time when;
  std::vector<std::pair<std::string, std::int64_t>> bytes_by_use;
};

struct TraceEvents {
  int process = 0;
  int processes = 1;
  std::int64_t first_id = 0;  // of collectives[0]
  std::vector<TraceSlice> slices;
  std::vector<TraceCollective> collectives;
  std::vector<TraceSample> samples;
  std::size_t dropped = 0;

  std::size_t size() const { return slices.size() + collectives.size() + samples.size(); }
};

constexpr const char* kTraceSeparator = ",\n";  // an event a line

// The whole of a file, from the JSON of its metadata and of its events.
std::string trace_file(const std::string& about, const std::string& events);

std::string trace_json(const TraceEvents& events);

}  // namespace meshtorch
