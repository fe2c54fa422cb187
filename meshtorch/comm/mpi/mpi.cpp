// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/mpi/mpi.h>

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/poll.h>
#include <meshtorch/comm/environment.h>

namespace meshtorch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMessageBytes = 64 << 20;  // of one MPI call, whose counts are ints
constexpr int kSpins = 100;                       // polls before the core is offered to others,
constexpr int kAloneSpins = 50'000;  // where every process of the machine has one of its own
constexpr auto kLastWords = std::chrono::seconds(2);
constexpr auto kBehindTheFirst = std::chrono::milliseconds(200);
constexpr char kLeaving = 'L';

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> message{};
  int length = 0;
  MPI_Error_string(code, message.data(), &length);
  throw TransportError(text(call, ": ", message.data()));
}

// The processes of the program: one world in a process's life, as MPI can be initialised only once.
class World {
 public:
  static World& get() {
    static World* world = new World;  // outlives what the program's statics still wait for
    return *world;
  }

  World() {
    int initialised = 0;
    MPI_Initialized(&initialised);
    if (initialised) {
      MPI_Query_thread(&level_);
    } else {
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_);
      ours_ = true;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
    const LaunchEnvironment environment = read_environment();
    check_world(environment, process_, processes_, mpi_library());
    if (cores_of_process() >= environment.local_processes) spins_ = kAloneSpins;
    for (MPI_Comm* comm : {&data_, &notices_}) {
      MPI_Comm_dup(MPI_COMM_WORLD, comm);
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    on_exit([](int status, void*) { get().end(status); }, nullptr);
  }

  int process() const { return process_; }
  int processes() const { return processes_; }
  bool any_thread() const { return level_ >= MPI_THREAD_SERIALIZED; }
  bool broken() const { return broken_; }
  void give_up(bool by_itself) {
    if (!broken_.exchange(true)) by_itself_ = by_itself;
  }

  void exchange(const std::vector<Parcel>& parcels, const Waiting& waiting) {
    Requests requests;
    std::vector<Requests> firsts(parcels.size());
    try {
      {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < parcels.size(); ++i) {
          const bool gated = parcels[i].arrived != nullptr;
          receive(parcels[i], 0, gated ? 1 : parcels[i].in.size(), gated ? firsts[i] : requests);
          send(parcels[i], requests);
        }
      }
      poll_until([&] { return let_in(parcels, firsts, requests) && all_done(requests); }, spins_,
                 waiting);
    } catch (...) {
      // MPI may still read and write what is in flight.
      const std::lock_guard lock(mutex_);
      in_flight_.push_back(parcels);
      throw;
    }
  }

  void tell(int peer, const std::string& notice) noexcept {
    const std::lock_guard lock(mutex_);
    told_.remove_if([](Told& told) {
      int sent = 0;
      MPI_Test(&told.request, &sent, MPI_STATUS_IGNORE);
      return sent != 0;
    });
    Told& told = told_.emplace_back(Told{notice, MPI_REQUEST_NULL});
    MPI_Isend(told.notice.data(), static_cast<int>(told.notice.size()), MPI_CHAR, peer, 0, notices_,
              &told.request);
  }

  std::optional<std::pair<int, std::string>> hear() {
    const std::lock_guard lock(mutex_);
    while (true) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, 0, notices_, &there, &status), "MPI_Iprobe");
      if (!there) return std::nullopt;
      int size = 0;
      MPI_Get_count(&status, MPI_CHAR, &size);
      std::string notice(static_cast<std::size_t>(size), '\0');
      check(MPI_Recv(notice.data(), size, MPI_CHAR, status.MPI_SOURCE, 0, notices_,
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
      if (notice.front() != kLeaving) return std::pair(status.MPI_SOURCE, std::move(notice));
      left_.insert(status.MPI_SOURCE);
    }
  }

  // A process that ends takes the others with it, the launcher sees to that: each waits a moment, so
  // that all have said what they had to say. Launchers report the status of the first that ends.
  void leave() noexcept {
    try {
      for (int peer = 0; peer < processes_; ++peer) {
        if (peer != process_) tell(peer, std::string(1, kLeaving));
      }
      const auto begin = Clock::now();
      while (!all_left() && Clock::now() - begin < kLastWords) {
        hear();
        std::this_thread::sleep_for(kPollPause);
      }
      if (!by_itself_) std::this_thread::sleep_for(kBehindTheFirst);
    } catch (const TransportError&) {  // nobody is there any more
    }
  }

 private:
  struct Told {
    std::string notice;
    MPI_Request request;
  };

  using Requests = std::vector<MPI_Request>;

  bool all_left() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(left_.size()) == processes_ - 1;
  }

  // Receives what follows the first tensor of each parcel of which that is there and found right;
  // whether all are.
  bool let_in(const std::vector<Parcel>& parcels, std::vector<Requests>& firsts,
              Requests& requests) {
    bool all = true;
    for (std::size_t i = 0; i < parcels.size(); ++i) {
      if (firsts[i].empty()) continue;
      if (!all_done(firsts[i])) {
        all = false;
        continue;
      }
      firsts[i].clear();
      parcels[i].arrived();
      const std::lock_guard lock(mutex_);
      receive(parcels[i], 1, parcels[i].in.size(), requests);
    }
    return all;
  }

  void receive(const Parcel& parcel, std::size_t begin, std::size_t end, Requests& requests) {
    for (std::size_t i = begin; i < std::min(end, parcel.in.size()); ++i) {
      auto* at = static_cast<char*>(parcel.in[i].mutable_data_ptr());
      in_messages(parcel.in[i], [&](std::int64_t offset, int size) {
        check(MPI_Irecv(at + offset, size, MPI_BYTE, parcel.peer, 0, data_,
                        &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Irecv");
      });
    }
  }

  void send(const Parcel& parcel, Requests& requests) {
    for (const at::Tensor& tensor : parcel.out) {
      const auto* at = static_cast<const char*>(tensor.const_data_ptr());
      in_messages(tensor, [&](std::int64_t offset, int size) {
        check(MPI_Isend(at + offset, size, MPI_BYTE, parcel.peer, 0, data_,
                        &requests.emplace_back(MPI_REQUEST_NULL)),
              "MPI_Isend");
      });
    }
  }

  template <class F>
  static void in_messages(const at::Tensor& tensor, F f) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t offset = 0; offset < bytes; offset += kMessageBytes)
      f(offset, static_cast<int>(std::min(kMessageBytes, bytes - offset)));
  }

  bool all_done(Requests& requests) {
    if (requests.empty()) return true;
    const std::lock_guard lock(mutex_);
    statuses_.resize(requests.size());
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses_) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "MPI_Testall");
      }
    }
    check(code, "MPI_Testall");
    return done != 0;
  }

  void end(int status) {
    if (!broken_) {
      if (ours_) MPI_Finalize();
      return;
    }
    std::cout.flush();
    std::fflush(nullptr);
    leave();
    _exit(status == 0 ? EXIT_FAILURE : status);  // MPI_Finalize would wait for the dead
  }

  std::mutex mutex_;  // one MPI call at a time
  int spins_ = kSpins;
  MPI_Comm data_ = MPI_COMM_NULL, notices_ = MPI_COMM_NULL;
  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
  int process_ = 0, processes_ = 1;
  std::atomic<bool> broken_ = false, by_itself_ = false;
  std::vector<MPI_Status> statuses_;
  std::list<Told> told_;
  std::set<int> left_;
  std::list<std::vector<Parcel>> in_flight_;
};

class MpiTransport final : public Transport {
 public:
  int process() const override { return world_.process(); }
  int processes() const override { return world_.processes(); }
  bool any_thread() const override { return world_.any_thread(); }
  void exchange(const std::vector<Parcel>& parcels, const Waiting& waiting) override {
    world_.exchange(parcels, waiting);
  }
  void tell(int peer, const std::string& notice) noexcept override { world_.tell(peer, notice); }
  std::optional<std::pair<int, std::string>> hear() override { return world_.hear(); }
  void give_up(bool by_itself) noexcept override { world_.give_up(by_itself); }
  void leave() noexcept override { world_.leave(); }

 private:
  World& world_ = World::get();
};

}  // namespace

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const std::string whole(version.data());
  std::string line = whole.substr(0, whole.find_first_of(",\n"));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

std::unique_ptr<Transport> join_mpi() {
  if (World::get().broken()) {
    fail({.op = "Runtime",
          .where = "",
          .what = "the processes of this program fell apart before",
          .remedy = "end the program and start it anew"});
  }
  return std::make_unique<MpiTransport>();
}

}  // namespace meshtorch
