// SPDX-License-Identifier: Apache-2.0
//
// The only place that knows how data moves between devices. A collective takes one plain tensor for
// each addressable device of the mesh, in the order of `addressable(mesh)`, and returns as many. A
// group is formed by the positions that differ only along `axes`; the rank in it is row-major in the
// order the axes are listed (Mesh::group_rank).
//
// Post-conditions, for a group of n with inputs x_0 .. x_{n-1} (by rank):
//   all_reduce      every result is x_0 (+) ... (+) x_{n-1}, combined by one fixed tree:
//                   split the ranks in halves (the first the larger), combine each, then the two.
//                   The same bits on every device, on every backend, on any number of processes.
//   all_gather      every result is concat(x_0 .. x_{n-1}, dim); sizes along dim may differ
//   reduce_scatter  rank r gets its nested chunk (layout/shard.h) along dim of the tree sum
//   all_to_all      rank r gets concat over s of (rank r's nested chunk along dim of x_s, concat_dim)
//   broadcast       every result is x_root
//   permute         position p gets, of a global tensor cut as `from`, the box that `to` gives it
//
// No result shares memory with an input or with another result. Inputs may have any strides.
//
// Every process of the program calls the same collectives in the same order, as it runs the same
// program. A backend of several processes notices where they do not, and every process throws an Error
// that says which op and which scope differ (docs/comm.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/comm/ledger.h>
#include <meshtorch/layout/layout.h>

namespace meshtorch {

using Shards = std::vector<at::Tensor>;

enum class Reduction { sum, max, min };

// One collective, as a value.
struct Request {
  Collective kind = Collective::all_reduce;
  Mesh mesh;
  AxisList axes;
  std::int64_t dim = 0;                  // gathered, scattered or split
  std::int64_t concat_dim = 0;           // all_to_all
  Reduction reduction = Reduction::sum;  // all_reduce
  bool even = false;                     // all_gather, all_to_all: all inputs have one shape (one
                                         // message less; false if unknown)
  std::int64_t root = 0;                 // broadcast: the rank in the group
  Shape shape;                           // permute: of the global tensor
  Layout from, to;                       // permute
  std::string op, scope;                 // who asks, for messages

  static Request all_reduce(const Mesh& mesh, AxisList axes, Reduction reduction = Reduction::sum);
  static Request all_gather(const Mesh& mesh, AxisList axes, std::int64_t dim);
  static Request reduce_scatter(const Mesh& mesh, AxisList axes, std::int64_t dim);
  static Request all_to_all(const Mesh& mesh, AxisList axes, std::int64_t split_dim,
                            std::int64_t concat_dim);
  static Request broadcast(const Mesh& mesh, AxisList axes, std::int64_t root = 0);
  static Request permute(const Mesh& mesh, Shape shape, AxisList axes, Layout from, Layout to);

  // "all_reduce over dp of (dp=2, tp=2), aten::mm in train/step"
  std::string to_string() const;
};

// "dp", "dp+tp"
std::string axis_names(const Mesh& mesh, AxisList axes);

// A collective that may still be in flight. Copies share it. The inputs must not be written before it
// is done.
class Pending {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    virtual bool done() const = 0;
    virtual const Shards& wait() = 0;
    virtual std::int64_t wire_bytes() const = 0;
  };

  explicit Pending(Shards results) : results_(std::move(results)) {}
  explicit Pending(std::shared_ptr<Work> work) : work_(std::move(work)) {}

  bool done() const { return work_ == nullptr || work_->done(); }
  // The results; returns once they are there. Throws Error what went wrong, again at every call.
  const Shards& wait() { return work_ == nullptr ? results_ : work_->wait(); }
  // What this process sent to others for it; known when it is done.
  std::int64_t wire_bytes() const { return work_ == nullptr ? 0 : work_->wire_bytes(); }

 private:
  Shards results_;
  std::shared_ptr<Work> work_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Devices that exist, over all processes; process r holds devices [r*k, (r+1)*k).
  virtual std::int64_t devices() const = 0;
  virtual int process() const { return 0; }
  virtual int processes() const { return 1; }
  // The positions of the mesh that this process holds, ascending.
  virtual const std::vector<std::int64_t>& addressable(const Mesh& mesh) const = 0;

  // Begins a collective, which goes on while the program does something else. Collectives run in the
  // order in which they were begun.
  virtual Pending start(Request request, const Shards& shards) = 0;
  // As start(...), returning when it is done: the cheaper way where nothing is to be done meanwhile.
  virtual Pending run(Request request, const Shards& shards) {
    return start(std::move(request), shards);
  }

  // Returns when every process is here.
  virtual void barrier() {}
  // Something that every process does at this point of the program, with the same value: a checksum of
  // an input, a seed. Costs no message: processes that differ find out at their next collective.
  virtual void record(const std::string& /*what*/, std::uint64_t /*value*/) {}
  // This process leaves the program on account of an error: tells the others, who throw it.
  virtual void abandon(const std::string& /*why*/) noexcept {}
};

// All devices are virtual ones of this process: collectives are memory operations.
std::unique_ptr<Communicator> make_local_communicator(std::int64_t devices);

struct CommunicatorOptions {
  std::int64_t devices = 1;  // of this process
  double timeout = 600;      // seconds that a collective may wait for another process
};

// Local where this process was started alone, else that of all processes which were started together
// (comm/environment.h). Throws Error where they cannot be joined.
std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options);

}  // namespace meshtorch
