// SPDX-License-Identifier: Apache-2.0
//
// Runs a case on every mesh, at every size and from many placings of its operands, and compares with
// plain libtorch: values, gradients, the truth of the claimed layouts, what the ledger says.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "case.h"
#include "consistent.h"
#include "instance.h"
#include "placing.h"
#include "sizes.h"

namespace meshtorch::conformance {

struct RunOptions {
  std::size_t limit = 24;  // placings of one call on one mesh beyond those that always run
  std::size_t shown = 3;   // failures of one case that are printed; the others are counted
  bool quick = false;      // one-dimensional meshes, no zero sizes
  bool derived = true;     // in-place, out= and list forms, too
};

struct Tally {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t threw = 0;    // of those passed: plain libtorch throws, and so does the sharded call
  std::int64_t derived = 0;  // of those passed: in-place, out= and list forms
  Tally& operator+=(const Tally& other);
  std::string to_string() const;  // "12 0 3 4", what parse reads
  static Tally parse(const std::string& text);
};

// What plain libtorch gives.
struct Reference {
  Tensors values;  // the operands
  Tensors after;   // and after the call: some ops write without saying so
  Tensors outputs;
  std::vector<c10::IValue> others;
  Tensors cotangents;  // of the outputs; undefined where there is no gradient
  Tensors gradients;   // of the operands
  std::string thrown;
  double tolerance = 1e-9;
};

// One call of one case: sizes, mesh, dense reference.
struct Scene {
  const Instance& instance;
  const Regime& regime;
  const Mesh& mesh;
  const Reference& reference;
  std::optional<OpRule> rule;
  std::uint64_t seed;
};

class Runner {
 public:
  explicit Runner(std::ostream& out, RunOptions options = {});

  Tally run(const Case& of);

 private:
  void run_scene(const Case& of, const Regime& regime, const Mesh& mesh);
  void run_derived(const Scene& scene, const std::vector<Placing>& placings);
  void report(const Scene& scene, const std::string& what, const Placing& placing,
              const std::vector<std::string>& problems);
  void count(const Scene& scene, const std::string& what, const Placing& placing,
             const std::vector<std::string>& problems, bool refused);

  std::ostream& out_;
  RunOptions options_;
  std::vector<Mesh> meshes_;
  Tally tally_;
};

// The dense values, results and gradients. Throws Error where the case says that there are gradients and
// libtorch has none.
Reference reference_of(const Instance& instance, std::uint64_t seed);
// As above for a random op: what replicated operands on the mesh give.
Reference seeded_reference(const Instance& instance, const Mesh& mesh, std::uint64_t seed);

// What is wrong with the call from this placing; empty where nothing is. `expected`: the rule's own.
std::vector<std::string> check_call(const Scene& scene, const Placing& placing,
                                    const Consistent* expected);

// What it says, without libtorch's stack of calls.
std::string message_of(const std::exception& error);

// A hash of text that is the same everywhere.
std::uint64_t stable_hash(const std::string& text, std::uint64_t start = 0xcbf29ce484222325u);

}  // namespace meshtorch::conformance
