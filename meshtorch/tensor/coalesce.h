// SPDX-License-Identifier: Apache-2.0
//
// Redistributing many tensors at once: every tensor follows its own plan, and steps of the same kind
// over the same axes run as one collective on one flat buffer.
#pragma once

#include <exception>
#include <optional>
#include <vector>

#include <meshtorch/tensor/redistribute.h>

namespace meshtorch {

struct Move {
  Shape shape;
  Layout from;
  Layout to;
  Shards locals;  // replaced by the results
  // Where the results may be written, one for each local, of the shape and dtype that `to` gives them;
  // empty: nowhere. Results that were written there are these very tensors.
  Shards into = {};
};

// All on one mesh. Results share memory with the inputs only where nothing had to change.
void redistribute_all(const Mesh& mesh, std::vector<Move>& moves, const Cause& cause);

// The same while the program does something else: the first collective of every plan is begun when the
// flight is made; what comes after it, where the program waits.
class Flight {
 public:
  Flight(const Mesh& mesh, std::vector<Move> moves, const Cause& cause);

  // Whether wait() would neither wait nor begin a collective.
  bool arrived() const;
  // The moves with their results, and every `into` written. Throws what went wrong. Both again at every
  // call.
  std::vector<Move>& wait();

 private:
  friend void redistribute_all(const Mesh&, std::vector<Move>&, const Cause&);

  // Steps of one kind, of several moves, on one flat buffer.
  struct Bucket {
    std::vector<std::size_t> members;
    std::vector<const Step*> steps;          // one for each member
    std::vector<std::vector<Shape>> locals;  // sizes before the step, [member][device]
    std::optional<Started> started;
    Shards results;
  };

  Flight(const Mesh& mesh, std::vector<Move> moves, const Cause& cause, bool now);
  void begin_round();
  void end_round();
  void run_alone(std::size_t move);
  void begin(const std::vector<std::size_t>& members);
  Shards pack(Bucket& bucket);
  void unpack(Bucket& bucket);
  void place(Bucket& bucket, std::size_t member, std::size_t device, const at::Tensor& flat);

  Mesh mesh_;
  std::vector<Move> moves_;
  Cause cause_;
  bool now_ = false;  // nothing to do meanwhile
  std::vector<const Plan*> plans_;
  std::vector<std::size_t> next_;  // step of each plan
  std::vector<Bucket> flying_;
  std::exception_ptr failure_;
};

}  // namespace meshtorch
