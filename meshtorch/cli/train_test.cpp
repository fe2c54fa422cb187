// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/train.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/module.h>
#include <meshtorch/models/gpt.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;

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

TEST_F(Train, TheLedgerOfAStepIsWhatTheFormulasSay) {
  train(tiny(), told_);
  const std::string told = told_.str();
  for (const char* line :
       {"dp reduce-scatter, gradients", "dp all-gather, parameters", "tp all-reduce, layers"}) {
    const auto at = told.find(line);
    ASSERT_NE(at, std::string::npos) << told;
    EXPECT_THAT(told.substr(at, told.find('\n', at) - at), HasSubstr("1.000"));
  }
  EXPECT_THAT(told, HasSubstr("inside the microbatch loop, over dp: none"));
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

TEST_F(Train, AnotherStageOfZero) {
  TrainOptions options = tiny();
  options.zero = 2;
  EXPECT_EQ(complaint(options),
            "[Zero] stage: got 2, expected 1; use stage 1, the one there is so far");
}

TEST_F(Train, AFolderThatCannotBe) {
  TrainOptions options = tiny();
  options.out = folder_ + "/text/out";
  EXPECT_EQ(complaint(options),
            "[train] --out " + folder_ + "/text/out: cannot be written; use a folder of your own");
}

}  // namespace
}  // namespace meshtorch
