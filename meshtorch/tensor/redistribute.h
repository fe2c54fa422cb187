// SPDX-License-Identifier: Apache-2.0
//
// Executes redistribution plans on local tensors and writes the ledger.
#pragma once

#include <string>
#include <vector>

#include <meshtorch/comm/ledger.h>
#include <meshtorch/layout/plan.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

// Why data moves, for the ledger and for messages.
struct Cause {
  std::string op;
  Origin origin = Origin::asked;
  std::string where;  // operand, leaf path
};

// What a collective weighs in the ledger: `bytes` as in layout/plan.h, `tensors` coalesced into it.
struct Weight {
  std::int64_t bytes = 0;
  int tensors = 1;
};

// Enters one collective in the ledger and gives the entry's number.
std::int64_t record_collective(const Request& request, const Weight& weight, const Cause& cause);

// Runs one collective and enters it in the ledger.
Shards run_collective(Request request, const Shards& shards, const Weight& weight,
                      const Cause& cause);

// A collective that was begun: in the ledger since then, with what it took once it is waited for.
class Started {
 public:
  Started(Request request, const Shards& shards, const Weight& weight, const Cause& cause);
  bool done() const { return pending_.done(); }
  const Shards& wait();

 private:
  Mesh mesh_;
  std::int64_t entry_;
  std::int64_t traced_;
  Pending pending_;
};

// The collective that a step of a plan is, of tensors of this global shape.
Request request_of(const Mesh& mesh, const Shape& shape, const Step& step);

// plan_redistribution, kept by the runtime: plans of a steady program are few and asked for often.
const Plan& cached_plan(const Mesh& mesh, const Shape& shape, std::int64_t item_size,
                        const Layout& from, const Layout& to);

// The locals of a tensor of this shape, laid out as `to`. Where nothing has to change the result
// shares memory with the input; `own` asks for locals that share with nothing.
Shards redistribute(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to,
                    const Shards& locals, const Cause& cause, bool own = false);

// As above for a sharded tensor, using and keeping the reduced value beside it.
Shards redistribute(ShardedView& view, const Shape& shape, const Layout& to, const Cause& cause,
                    bool own = false);

// The locals of a plain (replicated) tensor; they share memory with it where `to` lets them. `meta`:
// its shape and dtype only, as meta shards (comm/meta.h); a meta tensor's locals never are others.
Shards place(const at::Tensor& plain, const Mesh& mesh, const Layout& to, bool meta = false);

}  // namespace meshtorch
