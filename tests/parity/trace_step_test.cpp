// SPDX-License-Identifier: Apache-2.0
//
// The trace of a real step says what the ledger and the allocator say.
#include "compare.h"

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/trace.h>

namespace mt = meshtorch;
using Json = nlohmann::json;
using mt::P;

namespace {

std::map<std::string, std::vector<Json>> by_phase(const std::string& text) {
  std::map<std::string, std::vector<Json>> events;
  const Json file = Json::parse(text);
  for (const auto& event : file.at("traceEvents"))
    events[event.at("ph").get<std::string>()].push_back(event);
  return events;
}

TEST(TraceOfAStep, HasOpsCollectivesScopesAndMemory) {
  mt::Runtime runtime({.devices = 8, .memory = true});
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::Tanh(),
                            torch::nn::Linear(32, 16));
  mt::shard(*net, mesh,
            mt::PathRules({{"0", P("tp")}, {"2.weight", P(mt::whole, "tp")}})
                .otherwise(mt::Unmatched::replicate));
  mt::Zero<torch::optim::SGD> zero(net->parameters(), {.axis = "dp"},
                                   torch::optim::SGDOptions(0.1));
  const auto x = mt::device_put(torch::randn({8, 16}), {mesh, P("dp")});
  runtime.ledger().clear();
  mt::Trace trace;
  {
    mt::named_scope scope("step");
    net->forward(x).square().mean().backward();
    zero.step();
    zero.zero_grad();
  }
  auto events = by_phase(trace.to_json());

  // A lane of ops for every device, with the same ops on each.
  std::map<std::int64_t, std::map<std::string, int>> ops;
  std::set<std::string> scopes;
  for (const auto& event : events["X"]) {
    const auto name = event.at("name").get<std::string>();
    if (name.rfind("aten::", 0) == 0) {
      ++ops[event.at("tid").get<std::int64_t>()][name];
    } else {
      scopes.insert(name);
    }
  }
  ASSERT_EQ(ops.size(), 8u);
  for (const auto& [lane, counts] : ops) EXPECT_EQ(counts, ops.begin()->second);
  EXPECT_EQ(ops.begin()->second["aten::addmm"], 2);
  EXPECT_TRUE(scopes.contains("step"));
  EXPECT_TRUE(scopes.contains("zero"));

  EXPECT_EQ(events["b"].size(), runtime.ledger().entries().size());
  EXPECT_EQ(events["e"].size(), events["b"].size());
  std::int64_t bytes = 0;
  for (const auto& event : events["b"]) bytes += event.at("args").at("bytes").get<std::int64_t>();
  EXPECT_EQ(bytes, runtime.ledger().bytes([](const auto&) { return true; }));

  // The last sample of each device: parameters are what the layouts say.
  std::map<std::string, std::int64_t> parameters;
  for (const auto& event : events["C"])
    parameters[event.at("name").get<std::string>()] =
        event.at("args").at("parameters").get<std::int64_t>();
  ASSERT_EQ(parameters.size(), 8u);
  for (const auto& [device, live] : parameters)
    EXPECT_EQ(live, (16 * 32 / 2 + 32 / 2 + 32 * 16 / 2 + 16) * 4) << device;
}

}  // namespace
