// SPDX-License-Identifier: Apache-2.0
//
// A communicator whose collectives complete as late as they can: one that was started reads its inputs
// and makes its results only when it is waited for. What a program gets wrong about collectives in
// flight - a result used too early, an input written too soon, a handle forgotten - is then in its
// values. The log says when each was started and waited for, between the program's own marks:
//
//   auto log = std::make_shared<CollectiveLog>();
//   Runtime runtime({}, make_late_communicator(4, log));
//   log->mark("forward 0");
//   ...
//   EXPECT_THAT(log->lines(), ElementsAre("forward 0", "start all-gather 0", "wait all-gather 0"));
//
// A number is the collective's among those of its kind that were started since the log was cleared.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/comm/communicator.h>

namespace meshtorch {

class CollectiveLog {
 public:
  enum class What { mark, start, wait, drop };
  struct Event {
    What what = What::mark;
    std::string name;   // the mark, or "all-gather 0"
    int in_flight = 0;  // after the event
    std::string axes = "";
    std::string op = "", scope = "";
  };

  void mark(std::string name) { events_.push_back({What::mark, std::move(name), in_flight_}); }
  void clear() {
    events_.clear();
    numbers_.clear();
  }

  const std::vector<Event>& events() const { return events_; }
  // Started and neither waited for nor dropped.
  int in_flight() const { return in_flight_; }
  int most_in_flight() const {
    int most = 0;
    for (const Event& event : events_) most = std::max(most, event.in_flight);
    return most;
  }
  int count(What what) const {
    return static_cast<int>(std::count_if(events_.begin(), events_.end(),
                                          [&](const Event& event) { return event.what == what; }));
  }
  // "forward 0", "start all-gather 0", "wait all-gather 0", "drop all-gather 0"
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (const Event& event : events_) lines.push_back(verb(event.what) + event.name);
    return lines;
  }

  // For the communicator.
  Event started(const Request& request) {
    const std::string kind(meshtorch::name(request.kind));
    Event event{What::start,  kind + " " + std::to_string(numbers_[kind]++),
                ++in_flight_, axis_names(request.mesh, request.axes),
                request.op,   request.scope};
    events_.push_back(event);
    return event;
  }
  void ended(Event event, What how) {
    event.what = how;
    event.in_flight = --in_flight_;
    events_.push_back(std::move(event));
  }

 private:
  static std::string verb(What what) {
    switch (what) {
      case What::mark:
        return "";
      case What::start:
        return "start ";
      case What::wait:
        return "wait ";
      case What::drop:
        return "drop ";
    }
    return "?";
  }

  std::vector<Event> events_;
  std::map<std::string, int> numbers_;
  int in_flight_ = 0;
};

namespace detail {

class LateWork final : public Pending::Work {
 public:
  LateWork(std::shared_ptr<Communicator> inner, std::shared_ptr<CollectiveLog> log, Request request,
           Shards shards)
      : inner_(std::move(inner)),
        log_(std::move(log)),
        request_(std::move(request)),
        inputs_(std::move(shards)),
        event_(log_->started(request_)) {}
  ~LateWork() override {
    if (!done_) log_->ended(event_, CollectiveLog::What::drop);
  }

  bool done() const override { return done_; }
  const Shards& wait() override {
    if (done_) return results_;
    log_->ended(event_, CollectiveLog::What::wait);
    results_ = inner_->run(request_, inputs_).wait();
    inputs_.clear();
    done_ = true;
    return results_;
  }
  std::int64_t wire_bytes() const override { return 0; }

 private:
  std::shared_ptr<Communicator> inner_;
  std::shared_ptr<CollectiveLog> log_;
  Request request_;
  Shards inputs_, results_;
  CollectiveLog::Event event_;
  bool done_ = false;
};

class LateCommunicator final : public Communicator {
 public:
  LateCommunicator(std::int64_t devices, std::shared_ptr<CollectiveLog> log)
      : inner_(make_local_communicator(devices)), log_(std::move(log)) {}

  std::int64_t devices() const override { return inner_->devices(); }
  const std::vector<std::int64_t>& addressable(const Mesh& mesh) const override {
    return inner_->addressable(mesh);
  }
  Pending start(Request request, const Shards& shards) override {
    return Pending(std::make_shared<LateWork>(inner_, log_, std::move(request), shards));
  }
  // Not logged: the program does nothing meanwhile.
  Pending run(Request request, const Shards& shards) override {
    return inner_->run(std::move(request), shards);
  }

 private:
  std::shared_ptr<Communicator> inner_;  // handles may outlive this
  std::shared_ptr<CollectiveLog> log_;
};

}  // namespace detail

inline std::unique_ptr<Communicator> make_late_communicator(std::int64_t devices,
                                                            std::shared_ptr<CollectiveLog> log) {
  return std::make_unique<detail::LateCommunicator>(devices, std::move(log));
}

}  // namespace meshtorch
