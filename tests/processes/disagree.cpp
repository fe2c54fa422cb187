// SPDX-License-Identifier: Apache-2.0
//
//   disagree KIND [STEPS]    one process of several, of which the last does something else than the
//                            others after some steps of training
//   disagree train STEPS     no one differs
//
// disagree_test.cpp holds what the processes must say of each kind.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <torch/torch.h>
#include <unistd.h>

#include <meshtorch/comm/environment.h>
#include <meshtorch/meshtorch.h>

#include "training.h"

namespace mt = meshtorch;
using mt::accumulate;
using mt::P;
using mt::Self;
using mt::train;
using mt::whole;

namespace {

using Alter = std::function<void(mt::RuntimeOptions&)>;  // of the process that differs

const std::map<std::string, Alter> kOptions = {
    {"devices", [](auto& options) { options.devices = 3; }},
    {"mode", [](auto& options) { options.mode = mt::Mode::strict; }},
    {"threads", [](auto& options) { options.threads = 2; }},
    {"bad-threads", [](auto& options) { options.threads = -1; }},
    {"seed-option", [](auto& options) { options.seed = 5; }},
};

using Run = std::function<void(const Self&)>;

void differ_in_mesh(const Self& self, std::vector<mt::MeshAxis> axes) {
  const auto mesh = self.odd ? self.runtime.make_mesh(std::move(axes)) : self.mesh;
  mt::full(mt::device_put(torch::ones({12, 8}), {mesh, P(mesh.axes()[0].name)}));
}

mt::AxisList dp() {
  mt::AxisList axes;
  axes.push_back(0);
  return axes;
}

mt::Pending begin(const Self& self, const mt::Request& request) {
  return self.runtime.communicator().start(request, {torch::ones({4}), torch::ones({4})});
}

const std::map<std::string, Run> kCollectives = {
    {"collective",
     [](const Self& self) { mt::reshard(self.placed(P("dp")), self.odd ? P(whole, "dp") : P()); }},
    {"axis",
     [](const Self& self) {
       mt::reshard(self.placed(P("dp", "tp")), self.odd ? P("dp") : P(whole, "tp"));
       self.agree();
     }},
    {"reduction-axes",
     [](const Self& self) {
       mt::reshard(self.placed(P().unreduced("dp", "tp")), self.odd ? P() : P().unreduced("tp"));
     }},
    {"dim",
     [](const Self& self) {
       mt::reshard(self.placed(P().unreduced("dp")), self.odd ? P(whole, "dp") : P("dp"));
     }},
    {"shape-of-shards",
     [](const Self& self) {
       mt::reshard(self.placed(P("dp")).narrow(1, 0, self.odd ? 2 : 4), P());
     }},
    {"dtype",
     [](const Self& self) {
       mt::reshard(self.placed(P("dp")).to(self.odd ? torch::kDouble : torch::kFloat), P());
     }},
    {"op",
     [](const Self& self) {
       const auto partial = self.placed(P(whole, "dp")).matmul(self.placed(P(whole, "dp")).t());
       self.odd ? partial.exp() : partial.relu();
     }},
    {"sum-or-product",
     [](const Self& self) {
       const auto x = self.placed(P(whole, "dp"));
       const auto partial =
           self.odd ? x.sum(1, true) : x.matmul(self.placed(P("dp")).narrow(0, 0, 8));
       mt::full(partial);
     }},
    {"scope",
     [](const Self& self) {
       mt::named_scope scope(self.odd ? "evaluate" : "train");
       self.agree();
     }},
    {"order",
     [](const Self& self) {
       const auto x = self.placed(P("dp")), y = self.placed(P(whole, "dp"));
       mt::full(self.odd ? y : x);
       mt::full(self.odd ? x : y);
     }},
    {"one-more",
     [](const Self& self) {
       const auto x = self.placed(P("dp"));
       if (self.odd) mt::reshard(x, P(whole, "dp"));
       self.agree();
     }},
    {"one-fewer",
     [](const Self& self) {
       const auto x = self.placed(P("dp"));
       if (!self.odd) mt::reshard(x, P(whole, "dp"));
       self.agree();
     }},
    {"reduction",
     [](const Self& self) {
       begin(self, mt::Request::all_reduce(self.mesh, dp(),
                                           self.odd ? mt::Reduction::max : mt::Reduction::sum))
           .wait();
     }},
    {"unread",  // begun, and nobody waits for it
     [](const Self& self) {
       begin(self, self.odd ? mt::Request::broadcast(self.mesh, dp())
                            : mt::Request::all_reduce(self.mesh, dp()));
     }},
    {"one-reads",
     [](const Self& self) {
       const auto loss = self.placed(P("dp")).sum();
       if (self.odd) std::cout << "loss " << loss.item<float>() << std::endl;
       self.agree();
     }},
};

const std::map<std::string, Run> kInputs = {
    {"shape",
     [](const Self& self) {
       mt::device_put(torch::ones({12, self.odd ? 6 : 8}), {self.mesh, P("dp")});
       self.agree();
     }},
    {"values",
     [](const Self& self) {
       mt::device_put(torch::full({12}, self.odd ? 2.0 : 1.0), {self.mesh, P("dp")});
       self.agree();
     }},
    {"spec",
     [](const Self& self) {
       mt::device_put(torch::ones({12, 8}), {self.mesh, self.odd ? P(whole, "dp") : P("dp")});
       self.agree();
     }},
    {"parts-shape",
     [](const Self& self) {
       const mt::Shape shape = {self.odd ? 24 : 12, 8};
       const auto rows = mt::process_box({self.mesh, P("dp")}, shape)[0].size();
       mt::device_put(mt::ProcessLocal{torch::ones({rows, 8}), shape}, {self.mesh, P("dp")});
       self.agree();
     }},
    {"parts-values",
     [](const Self& self) {
       mt::device_put(mt::ProcessLocal{torch::full({12}, self.odd ? 2.0 : 1.0), {12}},
                      {self.mesh, P()});
     }},
    {"seed",
     [](const Self& self) {
       self.runtime.manual_seed(self.odd ? 8 : 7);
       self.agree();
     }},
    {"generator",  // a plain draw more, and what comes of it
     [](const Self& self) {
       if (self.odd) torch::randn({1});
       mt::device_put(torch::randn({12}), {self.mesh, P("dp")});
       self.agree();
     }},
    {"draw",
     [](const Self& self) {
       const auto x = self.placed(P("dp"));
       if (self.odd) x.uniform_();
       self.agree();
     }},
    {"mesh-shape",
     [](const Self& self) {
       differ_in_mesh(self, {{"dp", self.runtime.processes()}});
     }},
    {"mesh-names",
     [](const Self& self) {
       differ_in_mesh(self, {{"data", self.runtime.processes()}, {"tp", 2}});
     }},
    {"mesh-order",
     [](const Self& self) {
       differ_in_mesh(self, {{"tp", 2}, {"dp", self.runtime.processes()}});
     }},
    {"no-backward", [](const Self& self) { accumulate(self, 1, !self.odd); }},
    {"microbatches", [](const Self& self) { accumulate(self, self.odd ? 3 : 2, true); }},
};

// What an op does with the wrong layout.
void misuse(const Self& self) { mt::reshard(self.placed(P("dp")), P("nowhere")); }

// What one process does by itself while the others go on.
const std::map<std::string, Run> kEnds = {
    {"exit", [](const Self&) { std::exit(0); }},
    {"exit-7", [](const Self&) { std::exit(7); }},
    {"stale-failure",
     [](const Self& self) {
       try {
         misuse(self);
       } catch (const mt::Error&) {  // the program knows what to do about this one
       }
       throw std::runtime_error("the file is gone");
     }},
    {"error", misuse},
    {"runtime-error", [](const Self&) { throw std::runtime_error("the file is gone"); }},
    {"torch-error", [](const Self&) { torch::ones({2}).matmul(torch::ones({3})); }},
    {"other-exception", [](const Self&) { throw 42; }},
    {"stall", [](const Self&) { pause(); }},
    {"stopped", [](const Self&) { raise(SIGSTOP); }},
    {"quick-exit", [](const Self&) { _exit(0); }},
    {"abort", [](const Self&) { std::abort(); }},
    {"crash", [](const Self&) { raise(SIGSEGV); }},
    {"killed", [](const Self&) { raise(SIGKILL); }},
};

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// `uncaught-X` is X in a program that catches nothing; `inside-X` catches while its Runtime lives.
std::string bare(const std::string& kind) {
  for (const char* way : {"uncaught-", "inside-"}) {
    if (starts_with(kind, way)) return kind.substr(std::string(way).size());
  }
  return kind;
}

int differ(const std::string& kind, const Self& self) {
  if (kind == "return") {
    if (!self.odd) self.agree();
    return 0;
  }
  if (const auto found = kEnds.find(kind); found != kEnds.end()) {
    if (self.odd) found->second(self);
    for (int i = 0; i < 3; ++i) self.agree();
    return 0;
  }
  for (const auto* kinds : {&kCollectives, &kInputs}) {
    if (const auto found = kinds->find(kind); found != kinds->end()) return found->second(self), 0;
  }
  if (kOptions.count(kind) > 0) return self.agree(), 0;
  std::cerr << "no such kind: " << kind << "\n";
  return 2;
}

int run(const std::string& kind, int steps) {
  const auto environment = mt::read_environment();
  const bool odd = environment.process == environment.processes - 1;
  mt::RuntimeOptions options{.devices = 2, .warn_fallback = false};
  const auto alter = kOptions.find(kind);
  if (alter != kOptions.end() && odd) alter->second(options);
  if (kind == "before" && odd) throw std::runtime_error("the file is gone");
  mt::Runtime runtime(options);
  const Self self{runtime, runtime.make_mesh({{"dp", runtime.processes()}, {"tp", 2}}), odd};
  train(self, steps);
  if (kind == "train") return 0;
  if (!starts_with(kind, "inside-")) return differ(bare(kind), self);
  try {
    return differ(bare(kind), self);
  } catch (const std::exception& error) {
    std::cerr << mt::text(error.what(), "\n");
    return 3;
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string kind = count > 1 ? arguments[1] : "";
  const int steps = count > 2 ? std::atoi(arguments[2]) : 3;
  if (starts_with(kind, "uncaught-")) return run(kind, steps);
  try {
    return run(kind, steps);
  } catch (const std::exception& error) {
    std::cerr << mt::text(error.what(), "\n");
    return 3;
  }
}
