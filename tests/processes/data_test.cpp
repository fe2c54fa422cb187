// SPDX-License-Identifier: Apache-2.0
//
// Data that no process has whole: parts placed, batches read in parts. Eight devices in all, over as
// many processes as there are; what a process should hold is worked out for every process here.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/cli/train.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/data/sampler.h>
#include <meshtorch/data/text.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kDevices = 8;

class DataOfProcesses : public testing::Test {
 protected:
  // Devices of a mesh by process: as many consecutive ones each as make_mesh gives.
  std::int64_t process_of(const Mesh& mesh, std::int64_t position) const {
    return position * processes / mesh.size();
  }

  // The box of a process, none where its devices' elements fill none: their number, each once, against
  // the product of the extents.
  std::optional<Box> box_of(std::int64_t process, const NamedSharding& sharding,
                            const Shape& shape) const {
    const Layout layout =
        resolve(sharding.mesh, sharding.spec, static_cast<std::int64_t>(shape.size()));
    at::Tensor held = at::zeros(shape, at::kBool);
    for (std::int64_t position = 0; position < sharding.mesh.size(); ++position) {
      if (process_of(sharding.mesh, position) != process) continue;
      cut(held, shard_box(sharding.mesh, shape, layout, position)).fill_(true);
    }
    const at::Tensor places = held.nonzero();
    if (places.size(0) == 0) return Box(shape.size());
    const at::Tensor low = std::get<0>(places.min(0)), high = std::get<0>(places.max(0)) + 1;
    Box box;
    for (std::int64_t dim = 0; dim < places.size(1); ++dim)
      box.push_back({low[dim].item<std::int64_t>(), high[dim].item<std::int64_t>()});
    if (volume(box) != places.size(0)) return std::nullopt;
    return box;
  }

  static at::Tensor cut(at::Tensor dense, const Box& box) {
    for (std::size_t dim = 0; dim < box.size(); ++dim)
      dense = dense.slice(static_cast<std::int64_t>(dim), box[dim].begin, box[dim].end);
    return dense;
  }

  bool all_have_boxes(const NamedSharding& sharding, const Shape& shape) const {
    for (std::int64_t process = 0; process < processes; ++process)
      if (!box_of(process, sharding, shape)) return false;
    return true;
  }

  std::vector<Mesh> meshes() const {
    std::vector<Mesh> meshes;
    for (const auto& [dp, tp] : {std::pair{4, 2}, {2, 2}, {8, 1}, {2, 4}})
      meshes.push_back(runtime.make_mesh({{"dp", dp}, {"tp", tp}}));
    return meshes;
  }

  const std::int64_t processes = read_environment().processes;
  Runtime runtime{{.devices = kDevices / processes}};
  const std::int64_t process = runtime.process();
};

void expect_same_shards(const at::Tensor& got, const at::Tensor& expected,
                        const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  ASSERT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(sharding_of(got), sharding_of(expected)) << what;
  const auto mine = addressable_shards(got), theirs = addressable_shards(expected);
  ASSERT_EQ(mine.size(), theirs.size()) << what;
  for (std::size_t d = 0; d < mine.size(); ++d)
    ASSERT_TRUE(torch::equal(mine[d].data, theirs[d].data)) << what << " device " << d;
}

TEST_F(DataOfProcesses, PartsMakeTheTensorThatTheWholeMakes) {
  const std::vector<P> specs{P(),
                             P("dp"),
                             P("tp"),
                             P("dp", "tp"),
                             P("tp", "dp"),
                             P(whole, "tp"),
                             P(whole, "dp"),
                             P(axes("dp", "tp")),
                             P(axes("tp", "dp")),
                             P(whole, axes("dp", "tp"))};
  int placed = 0, no_box = 0;
  for (const Mesh& mesh : meshes()) {
    for (const P& spec : specs) {
      for (const std::int64_t rows : {0, 1, 3, 5, 8, 16}) {
        const NamedSharding sharding{mesh, spec};
        const Shape shape{rows, 5};
        const std::string what = text(sharding, " of ", rows, " rows");
        const auto box = box_of(process, sharding, shape);
        if (!box) {
          ++no_box;
          EXPECT_THAT(message([&] { process_box(sharding, shape); }),
                      HasSubstr("elements that do not fill a box, by " + spec.to_string()))
              << what;
        }
        if (!all_have_boxes(sharding, shape)) continue;
        ++placed;
        const auto dense = torch::arange(rows * 5, torch::kInt).view({rows, 5});
        const Box mine = process_box(sharding, shape);
        EXPECT_EQ(volume(mine), volume(*box)) << what;
        EXPECT_TRUE(volume(mine) == 0 || mine == *box) << what;
        const auto x = device_put(ProcessLocal{cut(dense, mine), shape}, sharding);
        expect_same_shards(x, device_put(dense, sharding), what);
        EXPECT_TRUE(torch::equal(full(x), dense)) << what;
      }
    }
  }
  EXPECT_GT(placed, 150);
  EXPECT_EQ(no_box > 0, processes > 1);
}

TEST_F(DataOfProcesses, APartSharesNoMemoryWithTheTensor) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  auto mine = torch::zeros({kDevices / processes});
  const auto x = device_put(ProcessLocal{mine, {kDevices}}, {mesh, P("dp")});
  mine.fill_(1);
  EXPECT_EQ(x.sum().item<double>(), 0);
}

TEST_F(DataOfProcesses, PartsThatAreNone) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  const std::int64_t rows = kDevices / processes;
  const auto put = [&](const at::Tensor& data, const P& spec) {
    return message([&] { device_put(ProcessLocal{data, {kDevices, 3}}, {mesh, spec}); });
  };
  const std::string rest = text(", expected [", rows, ", 3], which process ", process,
                                " holds of [8, 3] by P(dp); give what process_box says");
  EXPECT_EQ(put(torch::zeros({rows + 1, 3}), P("dp")),
            text("[device_put] part: has shape [", rows + 1, ", 3]", rest));
  EXPECT_EQ(put(torch::zeros({rows}), P("dp")),
            text("[device_put] part: has shape [", rows, "]", rest));
  EXPECT_THAT(put(torch::zeros({kDevices, 3}), P().unreduced("dp")), HasSubstr("is unreduced"));
}

// A table that a process reads in parts, and which rows it was asked for.
struct Table {
  Batch whole;
  std::vector<Interval> asked;

  RowSource source() {
    return {.rows = whole.inputs.size(0), .read = [this](std::int64_t begin, std::int64_t end) {
              asked.push_back({begin, end});
              return Batch{whole.inputs.slice(0, begin, end), whole.targets.slice(0, begin, end)};
            }};
  }
};

constexpr std::int64_t kVocabulary = 32, kLength = 16;

// Rows with other numbers of ignored targets each; rows 6 and 7 have no valid one.
Batch make_batch(std::int64_t rows) {
  torch::manual_seed(11);
  const auto tokens = torch::randint(kVocabulary, {rows, kLength + 1}, torch::kLong);
  auto targets = tokens.slice(1, 1).clone();
  for (std::int64_t row = 0; row < rows; ++row) targets[row].slice(0, 0, row).fill_(-100);
  targets.slice(0, 6, 8).fill_(-100);
  return {tokens.slice(1, 0, kLength).contiguous(), targets};
}

struct Step {
  double loss = 0;
  std::vector<at::Tensor> gradients;
  std::string ledger;  // of the loop
};

Step run_step(Runtime& runtime, const Mesh& mesh, const std::vector<Microbatch>& micros) {
  torch::manual_seed(7);
  Gpt model(GptOptions{
      .vocabulary = kVocabulary, .length = kLength, .width = 32, .layers = 1, .heads = 4});
  shard(*model, mesh, gpt_sharding());
  runtime.ledger().clear();
  Step step;
  for (const Microbatch& micro : micros) {
    named_scope scope("microbatch");
    const auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
    loss.backward();
    step.loss += loss.item<double>();
  }
  step.ledger = runtime.ledger().to_string();
  for (const at::Tensor& parameter : model->parameters())
    step.gradients.push_back(full(parameter.grad()));
  return step;
}

TEST_F(DataOfProcesses, ABatchReadInPartsTrainsAsTheWhole) {
  for (const Mesh& mesh : meshes()) {
    for (const std::int64_t rows : {8, 11}) {
      for (const std::int64_t count : {1, 3, 4}) {
        const std::string what = text(mesh, ", ", rows, " rows, ", count, " microbatches");
        Table table{make_batch(rows), {}};
        const NamedSharding sharding{mesh, P("dp")};
        const auto parts = microbatches(table.source(), count, sharding);
        const auto wholes = microbatches(table.whole, count, sharding);
        ASSERT_EQ(parts.size(), wholes.size()) << what;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          EXPECT_EQ(parts[i].weight(), wholes[i].weight()) << what;
          expect_same_shards(parts[i].inputs, wholes[i].inputs, what);
          expect_same_shards(parts[i].targets, wholes[i].targets, what);
        }
        const Step got = run_step(runtime, mesh, parts), expected = run_step(runtime, mesh, wholes);
        EXPECT_EQ(got.loss, expected.loss) << what;
        EXPECT_EQ(got.ledger, expected.ledger) << what;
        for (std::size_t i = 0; i < expected.gradients.size(); ++i)
          EXPECT_TRUE(torch::equal(got.gradients[i], expected.gradients[i])) << what << ", " << i;
      }
    }
  }
}

TEST_F(DataOfProcesses, EachReadsItsRowsAlone) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  Table table{make_batch(16), {}};
  microbatches(table.source(), 2, {mesh, P("dp")});
  const std::int64_t mine = 8 / processes;
  EXPECT_EQ(table.asked, (std::vector<Interval>{{process * mine, (process + 1) * mine},
                                                {8 + process * mine, 8 + (process + 1) * mine}}));
}

TEST_F(DataOfProcesses, AProcessWithoutRowsIsAskedForNone) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  Table table{make_batch(1), {}};
  const auto micros = microbatches(table.source(), 1, {mesh, P("dp")});
  EXPECT_TRUE(torch::equal(full(micros.at(0).inputs), table.whole.inputs));
  ASSERT_EQ(table.asked.size(), 1u);
  EXPECT_EQ(table.asked[0].size(), process == 0 ? 1 : 0);
}

TEST_F(DataOfProcesses, TargetsAreCountedByOneSum) {
  const auto mesh = runtime.make_mesh({{"dp", kDevices}});
  Table table{make_batch(16), {}};
  runtime.ledger().clear();
  microbatches(table.source(), 4, {mesh, P("dp")});
  ASSERT_EQ(runtime.ledger().entries().size(), 1u) << runtime.ledger().to_string();
  const LedgerEntry& entry = runtime.ledger().entries()[0];
  EXPECT_EQ(entry.kind, Collective::all_reduce);
  EXPECT_EQ(entry.axes, "dp");
  EXPECT_EQ(entry.origin, Origin::asked);
  EXPECT_EQ(entry.scope, "microbatches");
  EXPECT_EQ(entry.bytes, 2 * 4 * 8 * (kDevices - 1) / kDevices);  // four int64
}

TEST_F(DataOfProcesses, ASamplersBatch) {
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  const auto images = torch::arange(23 * 3, torch::kFloat).view({23, 3});
  const auto labels = torch::arange(23);
  const Sampler sampler({.examples = 23, .batch = 8, .seed = 4});
  for (std::int64_t step = 0; step < 2 * sampler.steps(); ++step) {
    const RowSource source{
        .rows = sampler.rows(step), .read = [&](std::int64_t begin, std::int64_t end) {
          const auto mine = sampler.indices(step, begin, end);
          return Batch{images.index_select(0, mine), labels.index_select(0, mine)};
        }};
    const auto micro = microbatches(source, 1, {mesh, P("dp")}).at(0);
    EXPECT_TRUE(torch::equal(full(micro.targets), sampler.indices(step)));
    EXPECT_TRUE(torch::equal(full(micro.inputs), images.index_select(0, sampler.indices(step))));
  }
}

// The name under which only this process would write.
std::string path_of(std::int64_t process, const std::string& name) {
  return text(testing::TempDir(), "meshtorch_data_of_", read_environment().processes, "_", process,
              "_", name);
}

TEST_F(DataOfProcesses, TheFirstWritesAndAllRead) {
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  torch::nn::Linear saved(6, 4), loaded(6, 4);
  shard(*saved, mesh, PathRules{{"weight", P("tp")}, {"bias", P()}});
  shard(*loaded, mesh, PathRules{{"weight", P(whole, "tp")}, {"bias", P("dp")}});
  std::filesystem::remove(path_of(process, "linear"));
  runtime.communicator().barrier();
  save(*saved, path_of(process, "linear"));
  EXPECT_EQ(std::filesystem::exists(path_of(process, "linear")), process == 0);
  load(*loaded, path_of(0, "linear"));
  EXPECT_TRUE(torch::equal(full(loaded->weight.detach()), full(saved->weight.detach())));
  EXPECT_TRUE(torch::equal(full(loaded->bias.detach()), full(saved->bias.detach())));
  runtime.communicator().barrier();
  std::filesystem::remove(path_of(process, "linear"));
}

TEST_F(DataOfProcesses, TheFirstPrints) {
  std::ostringstream out;
  runtime.out(out) << "loss " << 2.5;
  EXPECT_EQ(out.str(), process == 0 ? "loss 2.5" : "");
}

// Its Runtime is its own.
TEST(TrainOfProcesses, TheFirstTellsAndWrites) {
  const LaunchEnvironment environment = read_environment();
  const std::string data = path_of(environment.process, "text"),
                    out = path_of(environment.process, "out");
  std::filesystem::remove_all(out);
  {
    std::ofstream text(data);
    for (int i = 0; i < 100; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  }
  std::ostringstream told;
  const TrainOutcome outcome = train({.microbatches = 2,
                                      .model = {.length = 8, .width = 16, .layers = 1, .heads = 2},
                                      .batch = 16,
                                      .steps = 2,
                                      .data = data,
                                      .out = out,
                                      .sample = 0},
                                     told);
  EXPECT_GT(outcome.train_loss, 0);
  const bool first = environment.process == 0;
  EXPECT_EQ(told.str().find("trained in") != std::string::npos, first);
  EXPECT_EQ(told.str().empty(), !first);
  EXPECT_EQ(std::filesystem::exists(out), first);
  EXPECT_EQ(std::filesystem::exists(out + "/model.safetensors"), first);
  std::filesystem::remove_all(out);
  std::filesystem::remove(data);
}

}  // namespace
}  // namespace meshtorch
