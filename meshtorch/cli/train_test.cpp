// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/train.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/module.h>
#include <meshtorch/models/gpt.h>

namespace meshtorch {
namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

class Train : public testing::Test {
 protected:
  Train()
      : folder_(testing::TempDir() + "meshtorch_train_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ + "/text");
    for (int i = 0; i < 100; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  }
  ~Train() override { std::filesystem::remove_all(folder_); }

  TrainOptions tiny() const {
    return {.microbatches = 2,
            .model = {.length = 8, .width = 16, .layers = 1, .heads = 2},
            .batch = 16,
            .learning_rate = 4e-3,
            .steps = 2,
            .data = folder_ + "/text",
            .out = folder_ + "/out",
            .sample = 5,
            .validate_every = 1};
  }

  // Of every step.
  std::vector<double> losses(const TrainOptions& options) {
    told_.str("");
    train(options, told_);
    std::ifstream lines(options.out + "/metrics.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      const auto parsed = nlohmann::json::parse(line);
      if (parsed.contains("loss")) losses.push_back(parsed.at("loss"));
    }
    return losses;
  }

  // "dp all-gather, parameters" and so on, with the last column: measured bytes to expected ones.
  std::map<std::string, std::string> ratios() const {
    std::istringstream told(told_.str());
    std::string line;
    while (std::getline(told, line) && line != "communication of one step") {
    }
    std::getline(told, line);  // header
    std::getline(told, line);
    std::map<std::string, std::string> ratios;
    while (std::getline(told, line) && line.find("  ") != std::string::npos)
      ratios[line.substr(0, line.find("  "))] = line.substr(line.rfind(' ') + 1);
    return ratios;
  }

  std::string complaint(const TrainOptions& options) {
    try {
      train(options, told_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::string folder_;
  std::ostringstream told_;
};

TEST_F(Train, WritesMetricsOfEveryStep) {
  const auto outcome = train(tiny(), told_);
  std::ifstream lines(folder_ + "/out/metrics.jsonl");
  std::vector<nlohmann::json> parsed;
  for (std::string line; std::getline(lines, line);) parsed.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(parsed.size(), 4u);  // step 1, quick validation, step 2, validation
  EXPECT_EQ(parsed[2].at("step"), 2);
  EXPECT_EQ(parsed[2].at("loss"), outcome.train_loss);
  EXPECT_GT(parsed[2].at("gradient_norm"), 0);
  EXPECT_GT(parsed[2].at("tokens_per_second"), 0);
  EXPECT_NEAR(parsed[2].at("learning_rate"), 2e-4, 1e-12);
  EXPECT_EQ(parsed[3].at("validation_loss"), outcome.validation_loss);
  EXPECT_NEAR(outcome.validation_loss, std::log(256.0), 0.3);
}

TEST_F(Train, DrawsTheLossCurve) {
  train(tiny(), told_);
  std::stringstream svg;
  svg << std::ifstream(folder_ + "/out/loss.svg").rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("<svg"));
  EXPECT_THAT(svg.str(), HasSubstr("validation"));
}

TEST_F(Train, SavesTheWeights) {
  train(tiny(), told_);
  Gpt model(tiny().model);
  const auto before = model->parameters()[0].detach().clone();
  load(*model, folder_ + "/out/model.safetensors");
  EXPECT_FALSE(model->parameters()[0].equal(before));
}

TEST_F(Train, TheLedgerOfAStepIsWhatIsExpected) {
  train(tiny(), told_);
  EXPECT_THAT(ratios(),
              UnorderedElementsAre(Pair("dp reduce-scatter, gradients", "1.000"),
                                   Pair("dp all-gather, parameters", "1.000"),
                                   Pair("tp all-reduce, layers, embedding, loss", "1.000")));
  EXPECT_THAT(told_.str(), HasSubstr("bytes/device, 1.000 times the least, "));
  // Whether a bucket that is not full leaves in the backward or after it is the engine's.
  EXPECT_THAT(told_.str(),
              ContainsRegex("inside the microbatch loop, over dp: 1, in the last backward"));
}

TEST_F(Train, AllStagesTrainAlike) {
  TrainOptions options = tiny();
  options.sample = 0;
  const auto expected = losses(options);
  for (const bool sequence_parallel : {false, true}) {
    options.sequence_parallel = sequence_parallel;
    for (options.zero = 0; options.zero <= 3; ++options.zero) {
      SCOPED_TRACE(testing::Message() << "stage " << options.zero << ", " << sequence_parallel);
      const auto got = losses(options);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, 1e-5);
      EXPECT_THAT(ratios(), Each(Pair(testing::_, "1.000")));
      EXPECT_EQ(ratios().contains("tp reduce-scatter, layers, embedding"), sequence_parallel);
      EXPECT_EQ(ratios().contains("tp all-gather, layers, head"), sequence_parallel);
      EXPECT_EQ(ratios().contains("dp reduce-scatter, gradients"), options.zero > 0);
    }
  }
}

TEST_F(Train, WhatASingleStepOfStage3GathersIsBounded) {
  TrainOptions options = tiny();
  options.zero = 3;
  options.steps = 1;
  train(options, told_);
  EXPECT_EQ(ratios().at("dp all-gather, parameters"), "-");
  EXPECT_EQ(ratios().at("dp reduce-scatter, gradients"), "1.000");
  EXPECT_THAT(told_.str(), HasSubstr("at most "));
}

TEST_F(Train, InBfloat16) {
  TrainOptions options = tiny();
  const auto expected = losses(options);
  options.precision = Precision::parse("params=float32,compute=bfloat16,output=float32");
  for (const int stage : {1, 3}) {
    for (const bool sequence_parallel : {false, true}) {
      options.zero = stage;
      options.sequence_parallel = sequence_parallel;
      const auto got = losses(options);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i] / expected[i], 1, 0.02);
        EXPECT_NE(got[i], expected[i]);
      }
      EXPECT_THAT(ratios(), Each(Pair(testing::_, "1.000"))) << told_.str();
    }
  }
}

TEST_F(Train, ExplainsBeforeItTrains) {
  TrainOptions options = tiny();
  options.explain = true;
  train(options, told_);
  const std::string told = told_.str();
  const auto at = told.find("ZeRO stage 1 over dp of (dp=4, tp=2), 2 microbatches of P(dp)");
  ASSERT_NE(at, std::string::npos) << told;
  EXPECT_LT(at, told.find("step 1/2"));
}

// The sums over tp that sequence parallelism leaves to the optimizer are explained, too.
TEST_F(Train, ExplainsSequenceParallelism) {
  TrainOptions options = tiny();
  options.explain = options.sequence_parallel = true;
  train(options, told_);
  EXPECT_THAT(told_.str(), ContainsRegex("all-reduce +tp +1 +"));
  EXPECT_THAT(told_.str(), HasSubstr("2 microbatches of P(dp)"));
}

TEST_F(Train, TracesTheSecondStep) {
  TrainOptions options = tiny();
  options.trace = folder_ + "/traces/step.json";
  train(options, told_);
  EXPECT_THAT(told_.str(), HasSubstr("wrote " + options.trace + "\n"));
  const auto file = nlohmann::json::parse(std::ifstream(options.trace));
  std::map<int, std::string> lanes;
  std::set<std::string> collectives, scopes;
  std::map<std::string, int> ops;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("name") == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("ph") == "b") collectives.insert(event.at("name"));
    if (event.at("ph") != "X") continue;
    const std::string lane = lanes.at(event.at("tid"));
    if (lane.starts_with("device ")) ++ops[lane];
    if (lane == "program") scopes.insert(event.at("name"));
  }
  EXPECT_EQ(ops.size(), 8u);  // devices
  for (const auto& [lane, count] : ops) EXPECT_EQ(count, ops.begin()->second) << lane;
  EXPECT_GT(ops.begin()->second, 100);
  EXPECT_THAT(collectives, IsSupersetOf({"reduce-scatter Zero::reduce_gradients over dp",
                                         "all-gather Zero::gather_parameters over dp",
                                         "all-reduce aten::_log_softmax over tp"}));
  EXPECT_THAT(scopes, IsSupersetOf({"microbatch", "zero"}));
}

TEST_F(Train, AccountsForMemory) {
  TrainOptions options = tiny();
  options.memory = true;
  train(options, told_);
  EXPECT_THAT(told_.str(), ContainsRegex("memory in it, bytes\ndevice .* activations "));
  EXPECT_THAT(told_.str(), HasSubstr("at peak"));
}

TEST_F(Train, NoFormulaForUnevenParts) {
  TrainOptions options = tiny();
  options.batch = 7;
  train(options, told_);
  EXPECT_THAT(told_.str(), HasSubstr("over tp: no formula where rows or sequences are cut"));
  options = tiny();
  options.model.length = 7;
  EXPECT_EQ(losses(options).size(), 2u);
  EXPECT_THAT(told_.str(), Not(HasSubstr("no formula")));
  const auto expected = losses(options);
  options.sequence_parallel = true;
  EXPECT_NEAR(losses(options).back() / expected.back(), 1, 1e-5);
  EXPECT_THAT(told_.str(), HasSubstr("no formula"));
}

TEST_F(Train, TellsWhatItIsAbout) {
  const auto outcome = train(tiny(), told_);
  const std::string told = told_.str();
  EXPECT_THAT(told, HasSubstr("      tp=0  tp=1\n----  ----  ----\ndp=0     0     1\n"));
  EXPECT_THAT(told, HasSubstr("layers.0.attention.q.weight"));
  EXPECT_THAT(told, HasSubstr("step 2/2  loss"));
  EXPECT_THAT(told, HasSubstr("wrote " + folder_ + "/out/loss.svg"));
  EXPECT_EQ(outcome.sample.size(), 5u);
}

TEST_F(Train, MicrobatchesDoNotChangeTheLoss) {
  TrainOptions options = tiny();
  const double two = train(options, told_).train_loss;
  options.microbatches = 1;
  EXPECT_NEAR(train(options, told_).train_loss / two, 1, 1e-6);
}

TEST_F(Train, StrictIsEnoughForAGpt) {
  TrainOptions options = tiny();
  options.strict = true;
  EXPECT_EQ(complaint(options), "");
}

TEST_F(Train, ABatchThatIsUnevenIsLegal) {
  TrainOptions options = tiny();
  options.batch = 7;
  EXPECT_EQ(complaint(options), "");
}

TEST_F(Train, AMissingOrEmptyText) {
  TrainOptions options = tiny();
  options.data = folder_ + "/none";
  EXPECT_EQ(complaint(options), "[ByteText] " + folder_ + "/none: no such file; check the path");
  std::ofstream(folder_ + "/empty");
  options.data = folder_ + "/empty";
  EXPECT_EQ(complaint(options),
            "[ByteText] " + folder_ + "/empty: the file is empty; give a text to train on");
}

TEST_F(Train, ATextShorterThanAWindow) {
  TrainOptions options = tiny();
  options.model.length = 5000;
  EXPECT_THAT(complaint(options), HasSubstr("give a longer text or a shorter length"));
}

TEST_F(Train, AFolderThatCannotBe) {
  TrainOptions options = tiny();
  options.out = folder_ + "/text/out";
  EXPECT_EQ(complaint(options),
            "[train] --out " + folder_ + "/text/out: cannot be written; use a folder of your own");
}

}  // namespace
}  // namespace meshtorch
