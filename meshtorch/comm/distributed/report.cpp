// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/report.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using Reports = std::map<int, Report>;

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string name_of(const std::vector<int>& processes) {
  return text(processes.size() == 1 ? "process " : "processes ", join(processes));
}

std::string failures(const Reports& reports) {
  std::vector<std::string> lines;
  for (const auto& [process, report] : reports) {
    if (report.kind == Report::Kind::failed)
      lines.push_back(text("process ", process, " failed: ", report.why));
  }
  return join(lines, "; ");
}

// The first place at which two processes differ; 0 where none do.
std::uint64_t first_difference(const Reports& reports) {
  std::map<std::uint64_t, std::uint64_t> digests;
  std::uint64_t first = 0;
  for (const auto& [process, report] : reports) {
    for (const auto& [sequence, event] : report.events) {
      const auto [known, fresh] = digests.emplace(sequence, event.digest);
      if (!fresh && known->second != event.digest && (first == 0 || sequence < first))
        first = sequence;
    }
  }
  return first;
}

// What each did at that place, those that did the same together.
std::string actions(const Reports& reports, std::uint64_t sequence) {
  std::map<std::string, std::set<std::uint64_t>> values;
  for (const auto& [process, report] : reports) {
    const auto event = report.events.find(sequence);
    if (event != report.events.end()) values[event->second.what].insert(event->second.value);
  }
  std::map<std::string, std::vector<int>> by_action;
  for (const auto& [process, report] : reports) {
    const auto event = report.events.find(sequence);
    std::string action = "did not get there";
    if (event != report.events.end()) {
      action = event->second.what;
      if (values[action].size() > 1) action += text(" of ", event->second.value);
    }
    by_action[action].push_back(process);
  }
  std::vector<std::string> lines;
  for (const auto& [action, list] : by_action) lines.push_back(name_of(list) + ": " + action);
  return join(lines, "; ");
}

std::string difference(const Reports& reports) {
  const std::uint64_t sequence = first_difference(reports);
  if (sequence == 0) return "";
  // The oldest place that all remember differs already: where they parted is forgotten.
  std::uint64_t oldest = 0;
  for (const auto& [process, report] : reports) {
    if (!report.events.empty()) oldest = std::max(oldest, report.events.begin()->first);
  }
  const bool forgotten = sequence == oldest && oldest > 1;
  return text("the processes differ ", forgotten ? "at or before" : "at", " place ", sequence,
              " of the program: ", actions(reports, sequence),
              "; every process must run the same program on the same inputs");
}

std::string stragglers(const Reports& reports, int processes) {
  std::uint64_t furthest = 0;
  for (const auto& [process, report] : reports) {
    if (!report.events.empty()) furthest = std::max(furthest, report.events.rbegin()->first);
  }
  std::vector<std::string> lines;
  std::vector<int> silent;
  for (int process = 0; process < processes; ++process) {
    const auto found = reports.find(process);
    if (found == reports.end()) {
      silent.push_back(process);
    } else if (!found->second.events.empty() && found->second.events.rbegin()->first < furthest) {
      lines.push_back(text("process ", process, " is behind, at place ",
                           found->second.events.rbegin()->first, ": ",
                           found->second.events.rbegin()->second.what));
    }
  }
  if (!silent.empty())
    lines.insert(lines.begin(), name_of(silent) + (silent.size() == 1 ? " does" : " do") +
                                    " not answer: dead, stuck, or computing for longer than that");
  return join(lines, "; ");
}

std::string reasons(const Reports& reports) {
  std::vector<std::string> lines;
  for (const auto& [process, report] : reports) {
    if (!report.why.empty()) lines.push_back(text("process ", process, " ", report.why));
  }
  return join(lines, "; ");
}

}  // namespace

std::string Report::to_string() const {
  std::ostringstream out;
  out << static_cast<char>(kind) << one_line(why) << "\n";
  for (const auto& [sequence, event] : events)
    out << sequence << " " << event.digest << " " << event.value << " " << one_line(event.what)
        << "\n";
  return std::move(out).str();
}

Report Report::parse(const std::string& text) {
  std::istringstream in(text);
  Report report;
  std::string line;
  std::getline(in, line);
  if (!line.empty()) report.kind = static_cast<Kind>(line.front());
  report.why = line.empty() ? "" : line.substr(1);
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    Ticket event;
    fields >> event.sequence >> event.digest >> event.value;
    std::getline(fields >> std::ws, event.what);
    report.events[event.sequence] = event;
  }
  return report;
}

std::string diagnose(const Reports& reports, int processes) {
  if (std::string found = failures(reports); !found.empty()) return found;
  if (std::string found = difference(reports); !found.empty()) return found;
  std::vector<std::string> parts;
  for (const std::string& part : {reasons(reports), stragglers(reports, processes)}) {
    if (!part.empty()) parts.push_back(part);
  }
  return join(parts, "; ");
}

}  // namespace meshtorch
