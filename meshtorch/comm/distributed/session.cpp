// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/session.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/digest.h>

namespace meshtorch {
namespace {

constexpr std::size_t kRemembered = 256;  // events, for reports
constexpr double kTellAfter = 1;          // seconds of waiting
constexpr double kAnswerWithin = 3;       // seconds that the others get to say what they were at

enum Notice : char { kWaiting = 'W', kReport = 'R' };

at::Tensor header(std::uint64_t sequence, std::uint64_t digest, std::uint64_t shapes) {
  at::Tensor tensor = at::empty({3}, at::kLong);
  auto* words = tensor.mutable_data_ptr<std::int64_t>();
  words[0] = static_cast<std::int64_t>(sequence);
  words[1] = static_cast<std::int64_t>(digest);
  words[2] = static_cast<std::int64_t>(shapes);
  return tensor;
}

std::uint64_t digest_of_shapes(const Shards& tensors, std::uint64_t digest) {
  for (const at::Tensor& tensor : tensors) {
    for (const std::int64_t size : tensor.sizes())
      digest = mix(digest, static_cast<std::uint64_t>(size));
    digest = mix(digest, tensor.nbytes());
  }
  return digest;
}

// All but the header.
std::string shapes_of(const Parcel& parcel) {
  std::vector<std::string> shapes;
  for (std::size_t i = 1; i < parcel.in.size(); ++i)
    shapes.push_back(text(parcel.in[i].sizes(), " ", parcel.in[i].scalar_type()));
  return join(shapes);
}

// Of each parcel the header, or what follows it.
std::vector<Parcel> cut(const std::vector<Parcel>& parcels, bool header) {
  const auto part = [&](const Shards& tensors) {
    const auto end = tensors.begin() + 1;
    return header ? Shards(tensors.begin(), end) : Shards(end, tensors.end());
  };
  std::vector<Parcel> result;
  for (const Parcel& parcel : parcels)
    result.push_back({.peer = parcel.peer, .out = part(parcel.out), .in = part(parcel.in)});
  return result;
}

std::uint64_t word(const at::Tensor& header, int i) {
  return static_cast<std::uint64_t>(header.const_data_ptr<std::int64_t>()[i]);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Ticket Session::enter(std::string what, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  digest_ = mix(mix(digest_, hash(what)), value);
  Ticket ticket{
      .sequence = ++sequence_, .digest = digest_, .what = std::move(what), .value = value};
  events_.emplace_hint(events_.end(), ticket.sequence, ticket);
  if (events_.size() > kRemembered) events_.erase(events_.begin());
  return ticket;
}

std::string Session::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Session::exchange(const Ticket& ticket, std::vector<Parcel> parcels) {
  for (Parcel& parcel : parcels) {
    const std::uint64_t shapes = digest_of_shapes(parcel.in, parcel.agreed);
    parcel.out.insert(parcel.out.begin(), header(ticket.sequence, ticket.digest,
                                                 digest_of_shapes(parcel.out, parcel.agreed)));
    parcel.in.insert(parcel.in.begin(), header(0, 0, 0));
    parcel.arrived = [this, &ticket, &parcel, shapes] { verify(ticket, parcel, shapes); };
  }
  if (!transport_.headers_first()) return exchange_more(ticket, parcels);
  exchange_more(ticket, cut(parcels, true));
  for (const Parcel& parcel : parcels) parcel.arrived();
  exchange_more(ticket, cut(parcels, false));
}

void Session::exchange_more(const Ticket& ticket, const std::vector<Parcel>& parcels) {
  if (const std::string why = failure(); !why.empty()) throw Error(why);
  const auto begin = Clock::now();
  bool told = false;
  try {
    transport_.exchange(parcels,
                        {.idle = [&] { watch(ticket, begin, told); }, .awaited = awaited_});
  } catch (const TransportError& error) {
    fall_apart(ticket, Report::Kind::engine, text("reports of its engine: ", error.what()));
  }
}

void Session::verify(const Ticket& ticket, const Parcel& parcel, std::uint64_t shapes) {
  const at::Tensor& theirs = parcel.in.front();
  if (word(theirs, 0) != ticket.sequence || word(theirs, 1) != ticket.digest)
    fall_apart(ticket, Report::Kind::differs, "");
  if (word(theirs, 2) == shapes) return;
  fall_apart(ticket, Report::Kind::differs,
             text("expected ", shapes_of(parcel), " from process ", parcel.peer,
                  ", which holds other shapes"));
}

void Session::watch(const Ticket& ticket, Clock::time_point begin, bool& told) {
  listen(ticket);
  const double waited = seconds_since(begin);
  if (!told && waited > std::min(kTellAfter, timeout_ / 4)) {
    told = true;
    tell_all(text(static_cast<char>(kWaiting), number_, " ", ticket.sequence, " ", ticket.digest));
  }
  if (waited > timeout_)
    fall_apart(ticket, Report::Kind::waited,
               text("waited ", timeout_, " s for the others (the time-out)"));
}

void Session::listen(const Ticket& ticket) {
  if (const std::string why = failure(); !why.empty()) throw Error(why);
  while (const auto notice = transport_.hear()) {
    const auto& [peer, message] = *notice;
    std::istringstream in(message.substr(1));
    if (message.front() == kWaiting) {
      std::uint64_t number = 0, sequence = 0, digest = 0;
      in >> number >> sequence >> digest;
      if (number == number_) compare(ticket, sequence, digest);
    } else {
      take_report(peer, message);
      fall_apart(ticket, Report::Kind::answers, "");
    }
  }
}

void Session::compare(const Ticket& ticket, std::uint64_t sequence, std::uint64_t digest) {
  {
    const std::lock_guard lock(mutex_);
    const auto mine = events_.find(sequence);
    if (mine == events_.end() || mine->second.digest == digest) return;
  }
  fall_apart(ticket, Report::Kind::differs, "");
}

void Session::fall_apart(const Ticket& ticket, Report::Kind kind, const std::string& why) {
  const Report mine = own_report(kind, why);
  {
    const std::lock_guard lock(mutex_);
    reports_[transport_.process()] = mine;
  }
  tell_all(static_cast<char>(kReport) + mine.to_string());
  collect_reports();
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ =
        format({.op = "communicator",
                .where = text("process ", transport_.process(), " of ", transport_.processes(),
                              ", at place ", ticket.sequence, " (", ticket.what, ")"),
                .what = diagnose(reports_, transport_.processes()),
                .remedy = ""});
  }
  transport_.give_up(false);
  throw Error(failure_);
}

Report Session::own_report(Report::Kind kind, const std::string& why) const {
  const std::lock_guard lock(mutex_);
  return {.kind = kind, .why = why, .events = events_};
}

void Session::take_report(int peer, const std::string& notice) {
  const std::lock_guard lock(mutex_);
  reports_[peer] = Report::parse(notice.substr(1));
}

void Session::collect_reports() {
  const auto begin = Clock::now();
  const auto all = [&] {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(reports_.size()) == transport_.processes();
  };
  while (!all() && seconds_since(begin) < std::min(kAnswerWithin, timeout_)) {
    if (const auto notice = transport_.hear()) {
      if (notice->second.front() == kReport) take_report(notice->first, notice->second);
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

void Session::tell_all(const std::string& notice) noexcept {
  for (int peer = 0; peer < transport_.processes(); ++peer) {
    if (peer != transport_.process()) transport_.tell(peer, notice);
  }
}

void Session::abandon(const std::string& why) noexcept {
  if (!failure().empty()) return;
  const Report mine = own_report(Report::Kind::failed, why);
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  tell_all(static_cast<char>(kReport) + mine.to_string());
  transport_.give_up(true);
}

}  // namespace meshtorch
