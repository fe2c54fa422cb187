// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <ostream>
#include <sstream>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

#include "derived.h"

namespace meshtorch::conformance {

std::uint64_t stable_hash(const std::string& text, std::uint64_t start) {
  for (const char c : text) start = (start ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return start;
}

Tally& Tally::operator+=(const Tally& other) {
  passed += other.passed;
  failed += other.failed;
  threw += other.threw;
  derived += other.derived;
  return *this;
}

std::string Tally::to_string() const { return text(passed, " ", failed, " ", threw, " ", derived); }

Tally Tally::parse(const std::string& text) {
  Tally tally;
  std::istringstream in(text);
  in >> tally.passed >> tally.failed >> tally.threw >> tally.derived;
  if (!in) fail({"conformance", "", "\"" + text + "\" is no tally", ""});
  return tally;
}

Runner::Runner(std::ostream& out, RunOptions options) : out_(out), options_(options) {
  const Runtime& runtime = Runtime::current();
  meshes_ = {runtime.make_mesh({{"x", 2}}), runtime.make_mesh({{"x", 3}}),
             runtime.make_mesh({{"x", 2}, {"y", 2}})};
}

Tally Runner::run(const Case& of) {
  tally_ = {};
  for (const Mesh& mesh : meshes_) {
    if (options_.quick && mesh.rank() > 1) continue;
    for (const Regime& regime : regimes(of, mesh)) {
      if (options_.quick && regime.zero()) continue;
      try {
        run_scene(of, regime, mesh);
      } catch (const std::exception& error) {
        ++tally_.failed;
        out_ << "FAILED " << of.op << "  " << of.where << "\n  " << of.text << "\n  " << regime.name
             << " " << describe(regime.sizes) << " on " << mesh
             << "\n  cannot be run: " << message_of(error) << "\n";
        return tally_;
      }
    }
  }
  return tally_;
}

void Runner::run_scene(const Case& of, const Regime& regime, const Mesh& mesh) {
  const Instance instance(of, regime.sizes);
  if (!instance.possible()) {
    if (regime.zero()) return;
    fail({"conformance", of.where, "a dim is negative at " + describe(regime.sizes),
          "give min(letter)="});
  }
  const std::uint64_t seed = stable_hash(of.text + regime.name) % 1000003;
  const Reference reference = of.compare == Compare::seeded ? seeded_reference(instance, mesh, seed)
                                                            : reference_of(instance, seed);
  if (regime.name == "even" && !reference.thrown.empty())
    fail({"conformance", of.where, "plain libtorch refuses the call: " + reference.thrown, ""});
  Scene scene{instance, regime, mesh, reference, std::nullopt, seed};
  std::vector<Consistent> own;
  if (reference.thrown.empty()) {
    scene.rule = bound_rule(instance, reference.values);
    if (scene.rule && !of.gathers) own = consistent_placings(*scene.rule, mesh, reference.values);
  }
  std::vector<Placing> always;
  for (const Consistent& placed : own) always.push_back(placed.placing);
  const std::vector<Placing> chosen =
      placings(reference.values, mesh, always, options_.limit, seed);
  for (const Placing& placing : chosen) {
    const Consistent* expected = nullptr;
    for (const Consistent& placed : own) {
      if (placed.placing == placing && !regime.zero()) expected = &placed;
    }
    count(scene, "", placing, check_call(scene, placing, expected), !reference.thrown.empty());
  }
  if (options_.derived && of.compare == Compare::values) run_derived(scene, chosen);
}

// Every fourth placing, each form beginning with another.
void Runner::run_derived(const Scene& scene, const std::vector<Placing>& placings) {
  std::size_t first = scene.seed;
  for (const DerivedOp& op : derived_ops(scene.instance.of().handle)) {
    if (!can_run(op, scene.reference)) continue;
    for (std::size_t p = first++ % 4; p < placings.size(); p += 4) {
      const Verdict verdict = check_derived(scene, op, placings[p]);
      count(scene, op.name(), placings[p], verdict.problems, verdict.refused);
    }
  }
}

void Runner::count(const Scene& scene, const std::string& what, const Placing& placing,
                   const std::vector<std::string>& problems, bool refused) {
  if (problems.empty()) {
    ++tally_.passed;
    tally_.threw += refused;
    tally_.derived += !what.empty();
    return;
  }
  if (++tally_.failed <= static_cast<std::int64_t>(options_.shown))
    report(scene, what, placing, problems);
}

void Runner::report(const Scene& scene, const std::string& what, const Placing& placing,
                    const std::vector<std::string>& problems) {
  const Case& of = scene.instance.of();
  out_ << "FAILED " << of.op << (what.empty() ? "" : " as " + what) << "  " << of.where << "\n  "
       << of.text << "\n  " << scene.regime.name << " " << describe(scene.regime.sizes) << " on "
       << scene.mesh << ": " << conformance::describe(scene.instance, scene.mesh, placing) << "\n";
  for (const std::string& problem : problems) out_ << "  " << problem << "\n";
  if (scene.rule) out_ << "  rule " << to_string(*scene.rule) << "\n";
  out_ << std::flush;
}

}  // namespace meshtorch::conformance
