// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/distributed.h>

#include <ATen/ThreadLocalState.h>

#include <exception>
#include <iostream>
#include <map>
#include <unordered_map>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/collectives.h>
#include <meshtorch/comm/distributed/digest.h>
#include <meshtorch/comm/distributed/work_queue.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/comm/private_scope.h>

namespace meshtorch {
namespace {

class Flight final : public Pending::Work {
 public:
  // `told` becomes true when the program is given an error.
  Flight(std::shared_ptr<WorkQueue> queue, std::shared_ptr<std::atomic<bool>> told,
         std::function<CollectiveResult()> run)
      : queue_(std::move(queue)),
        told_(std::move(told)),
        job_(std::make_shared<WorkQueue::Job>(
            [result = result_, run = std::move(run), state = at::ThreadLocalState()] {
              const at::ThreadLocalStateGuard as_begun(state);  // grad mode, dispatch keys
              *result = run();
            })) {}

  const std::shared_ptr<WorkQueue::Job>& job() const { return job_; }
  bool done() const override { return queue_->done(*job_); }
  const Shards& wait() override {
    try {
      queue_->wait(*job_);
    } catch (...) {
      *told_ = true;
      throw;
    }
    return result_->shards;
  }
  std::int64_t wire_bytes() const override { return result_->wire_bytes; }

 private:
  std::shared_ptr<WorkQueue> queue_;
  std::shared_ptr<std::atomic<bool>> told_;
  // The job's: a program may drop the handle while it runs.
  std::shared_ptr<CollectiveResult> result_ = std::make_shared<CollectiveResult>();
  std::shared_ptr<WorkQueue::Job> job_;
};

// What the processes must agree on beside the request itself. Sizes that may differ are left out, those
// of another group's members too (session.h: the two sides of a message compare its shape).
std::string describe(const Request& request, const Shards& shards) {
  std::string what = text(request.to_string(), ", ", shards[0].scalar_type());
  const bool uneven = !request.even && (request.kind == Collective::all_gather ||
                                        request.kind == Collective::all_to_all);
  if (request.kind == Collective::permute) {
    what += text("[", join(request.shape), "]");
  } else if (uneven || request.mesh.groups(request.axes).size() > 1) {
    what += text(" of ", shards[0].dim(), " dims");
  } else {
    what += text(shards[0].sizes());
  }
  switch (request.kind) {
    case Collective::all_reduce:
      if (request.reduction != Reduction::sum)
        what += request.reduction == Reduction::max ? ", max" : ", min";
      break;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      what += text(", dim ", request.dim);
      break;
    case Collective::all_to_all:
      what += text(", dims ", request.dim, " and ", request.concat_dim);
      break;
    case Collective::broadcast:
      what += text(", from rank ", request.root);
      break;
    case Collective::permute:
      break;
  }
  return what;
}

// A steady program says the same things again and again, and putting one into words takes longer than
// sending a small message.
class Descriptions {
 public:
  std::string of(const Request& request, const Shards& shards) {
    const std::lock_guard lock(mutex_);
    if (known_.size() > kMost) known_.clear();
    auto [found, fresh] = known_.try_emplace(key(request, shards));
    if (fresh) found->second = describe(request, shards);
    return found->second;
  }

 private:
  static constexpr std::size_t kMost = 4096;

  static std::uint64_t key(const Request& request, const Shards& shards) {
    std::uint64_t digest = mix(hash(request.op), hash(request.scope));
    const auto add = [&](auto value) { digest = mix(digest, static_cast<std::uint64_t>(value)); };
    add(request.kind);
    add(request.mesh.id());
    add(request.axes.packed());
    for (const std::int64_t value : {request.dim, request.concat_dim, request.root}) add(value);
    add(request.reduction);
    add(request.even);
    add(shards[0].scalar_type());
    for (const auto sizes : {shards[0].sizes(), at::IntArrayRef(request.shape)}) {
      add(sizes.size());
      for (const std::int64_t size : sizes) add(size);
    }
    for (const Layout* layout : {&request.from, &request.to}) {
      add(layout->unreduced.bits());
      for (const AxisList& axes : layout->dims) add(axes.packed());
    }
    return digest;
  }

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::string> known_;
};

class DistributedCommunicator;
DistributedCommunicator* live = nullptr;
std::uint64_t runtimes = 0;  // of this program so far; every process makes the same ones

class DistributedCommunicator final : public Communicator {
 public:
  DistributedCommunicator(std::unique_ptr<Transport> transport, const DistributedOptions& options)
      : transport_(std::move(transport)),
        devices_(options.devices),
        session_(*transport_, options.timeout, runtimes++, [this] { return queue_->awaited(); }),
        queue_(std::make_shared<WorkQueue>(transport_->any_thread())),
        alone_(make_local_communicator(options.devices)) {
    watch_for_the_end();
    record(text("Runtime of ", devices_, " devices a process"), 0);
    barrier();
    live = this;
  }

  // Processes end together: one that comes here while others still compute has left the program early.
  ~DistributedCommunicator() override {
    live = nullptr;
    if (std::uncaught_exceptions() > 0) {
      // Which exception it is cannot be asked while it unwinds: the latest Error may be one that the
      // program had caught.
      abandon(latest_failure().empty()
                  ? "an exception left the program"
                  : "an exception left the program; its latest error: " + latest_failure());
    }
    queue_->drain();  // handles may outlive this; jobs may not
    try {
      if (session_.failure().empty()) {
        exchange_all(session_.enter("the end of the Runtime"));
      } else if (!*told_ && std::uncaught_exceptions() == 0) {
        throw Error(session_.failure());  // of a collective that nobody waited for
      }
    } catch (const std::exception& error) {
      std::cerr << text(error.what(), "\n");
    }
  }

  std::int64_t devices() const override { return devices_ * processes(); }
  int process() const override { return transport_->process(); }
  int processes() const override { return transport_->processes(); }

  const std::vector<std::int64_t>& addressable(const Mesh& mesh) const override {
    return placement(mesh).positions_of(process());
  }

  Pending start(Request request, const Shards& shards) override {
    return begin(std::move(request), shards, false);
  }

  Pending run(Request request, const Shards& shards) override {
    Pending pending = begin(std::move(request), shards, true);
    pending.wait();
    return pending;
  }

  void barrier() override {
    const Ticket ticket = session_.enter("barrier");
    queue_->drain();
    try {
      exchange_all(ticket);
    } catch (...) {
      *told_ = true;
      throw;
    }
  }

  void record(const std::string& what, std::uint64_t value) override {
    if (!private_scope::active()) session_.enter(what, value);
  }

  void abandon(const std::string& why) noexcept override { session_.abandon(why); }

  Transport& transport() { return *transport_; }

 private:
  static void watch_for_the_end();

  Pending begin(Request request, const Shards& shards, bool now) {
    check(request, shards);
    // A sub-mesh of this process's own: the others have no part in it, nor in the program that uses it.
    if (shards.size() == static_cast<std::size_t>(request.mesh.size()))
      return alone_->start(std::move(request), shards);
    check_public(request);
    const Ticket ticket = session_.enter(descriptions_.of(request, shards));
    auto flight = std::make_shared<Flight>(
        queue_, told_, [this, ticket, shards, request = std::move(request)] {
          return run_collective(session_, ticket, placement(request.mesh), process(), request,
                                shards);
        });
    queue_->add(flight->job(), now);
    return Pending(std::move(flight));
  }

  void check(const Request& request, const Shards& shards) const {
    const std::size_t expected = addressable(request.mesh).size();
    if (shards.size() != expected || shards.empty()) {
      fail({.op = std::string(name(request.kind)),
            .where = request.op,
            .what = text("got ", shards.size(), " shards, this process holds ", expected,
                         " devices of mesh ", request.mesh),
            .remedy = "make the mesh with Runtime::make_mesh, which gives every process a part"});
    }
    if (!is_meta(shards)) return;
    fail({.op = std::string(name(request.kind)),
          .where = request.op,
          .what = "meta shards have no values to send to another process",
          .remedy =
              "make the Runtime with .meta = true: it simulates the devices of all processes"});
  }

  void check_public(const Request& request) const {
    if (!private_scope::active()) return;
    fail({.op = request.op.empty() ? std::string(name(request.kind)) : request.op,
          .where = text("mesh ", request.mesh),
          .what = "a rank's own code needs a collective with other processes",
          .remedy = "pass the tensor to local_map as an argument"});
  }

  void exchange_all(const Ticket& ticket) {
    std::vector<Parcel> parcels;
    for (int peer = 0; peer < processes(); ++peer) {
      if (peer != process()) parcels.push_back({.peer = peer, .out = {}, .in = {}});
    }
    session_.exchange(ticket, std::move(parcels));
  }

  const DevicePlacement& placement(const Mesh& mesh) const {
    const std::lock_guard lock(placements_mutex_);
    return placements_.try_emplace(mesh.id(), mesh, devices_).first->second;
  }

  std::unique_ptr<Transport> transport_;
  const std::int64_t devices_;
  Session session_;
  Descriptions descriptions_;
  mutable std::mutex placements_mutex_;
  mutable std::map<std::uint64_t, DevicePlacement> placements_;
  std::shared_ptr<WorkQueue> queue_;
  std::unique_ptr<Communicator> alone_;
  std::shared_ptr<std::atomic<bool>> told_ = std::make_shared<std::atomic<bool>>(false);
};

// What ends a process without unwinding: the others shall hear of it.
void at_exit() {
  if (live != nullptr) live->abandon("the program called exit() with its Runtime alive");
}

[[noreturn]] void at_terminate() {
  std::string why = "terminated";
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
    why = "terminated by an exception that is no std::exception";
  }
  std::cerr << text(why, "\n");  // in one piece
  if (live != nullptr) {
    live->abandon(why);
    live->transport().leave();
  }
  std::abort();
}

void DistributedCommunicator::watch_for_the_end() {
  static const bool once = [] {
    std::set_terminate(at_terminate);
    return std::atexit(at_exit) == 0;
  }();
  (void)once;
}

}  // namespace

std::unique_ptr<Communicator> make_distributed_communicator(std::unique_ptr<Transport> transport,
                                                            const DistributedOptions& options) {
  return std::make_unique<DistributedCommunicator>(std::move(transport), options);
}

}  // namespace meshtorch
