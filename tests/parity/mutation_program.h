// SPDX-License-Identifier: Apache-2.0
//
// A random program of views and writes that runs on plain tensors and on sharded ones at once.
//
// A Draw picks the next call from the state of the program (mutation_calls.h); a Program runs it on both
// sides and compares every live tensor: values, every device's shard, version, autograd state. A seed is a
// program: trace() prints it as lines of code.
#pragma once

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compare.h"

namespace meshtorch {

// The same tensor on both sides.
struct Pair {
  at::Tensor dense, sharded;
  const at::Tensor& on(bool sharded_side) const { return sharded_side ? sharded : dense; }
};

struct Value : Pair {
  std::string name;
};

// One line of the program. `run` is called once per side and returns the tensors that the line makes.
struct Call {
  enum class Kind { view, write, fresh } kind = Kind::fresh;
  std::string line;
  std::function<std::vector<at::Tensor>(bool sharded_side)> run;
  Pair target;               // of a view: its base; of a write: what is written
  bool makes_views = false;  // of a write: through views of its own making
  bool may_copy = false;     // of a view: libtorch leaves it open whether it is a view or a copy
};

class Program {
 public:
  struct Count {
    int writes = 0, refused = 0, both_throw = 0;
  };

  Program(Mesh mesh, unsigned seed, bool differentiable);

  // Whether both sides agreed all the way; else trace() ends with the difference.
  bool run(int steps);
  // After run: gradients of a random linear function of all live tensors.
  bool backward();

  const std::string& trace() const { return trace_; }
  const Count& count() const { return count_; }

 private:
  friend class Draw;

  std::size_t pick(std::size_t n) { return random_() % n; }
  P any_spec(std::int64_t rank, bool may_be_unreduced);
  Pair place(const at::Tensor& dense);
  void start();
  bool step();
  bool compare(const Value& value, bool look_at_graph);
  bool check_view(const Call& call, const Pair& result);
  bool check_refusal(const Call& call, const std::string& message);
  void keep(const Call& call, const std::vector<at::Tensor>& dense,
            const std::vector<at::Tensor>& sharded);
  bool say(const std::string& difference);

  Mesh mesh_;
  std::mt19937 random_;
  bool differentiable_, look_at_graph_;
  std::vector<Value> values_;
  std::vector<Pair> leaves_;
  std::set<const void*> moved_;  // storages of the dense side that a moved view looks into
  int names_ = 0;
  std::string trace_;
  Count count_;
};

// Draws the next line.
class Draw {
 public:
  explicit Draw(Program& program) : program_(program) {}
  Call call();

 private:
  Call view(const Value& x);
  Call reshaping(const Value& x);
  Call indexing(const Value& x);
  Call pieces(const Value& x);
  Call write(const Value& x);
  Call pointwise(const Value& x);
  Call indexed(const Value& x);
  Call other_write(const Value& x);
  Call metadata(const Value& x);
  Call out(const Value& x);
  Call fresh(const Value& x);

  std::size_t pick(std::size_t n) { return program_.pick(n); }
  bool coin() { return pick(2) == 1; }
  double number() { return static_cast<double>(pick(9)) / 4 - 1; }
  const Value& any() { return program_.values_[pick(program_.values_.size())]; }
  // An operand of this shape for a write to `x`: a live tensor where one fits and shares no memory with
  // `x` other than element for element, else a new one. `text` is how it is written.
  Pair operand(const Value& x, std::string& text);
  Pair constant(const at::Tensor& dense);

  Program& program_;
};

}  // namespace meshtorch
