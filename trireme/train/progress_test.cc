#include "trireme/train/progress.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "trireme/train/model.h"
#include "trireme/train/progress_text.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace train;  // NOLINT(google-build-using-namespace)

TEST(ProgressText, Numbers) {
  EXPECT_EQ(number_text(0.30123), "0.3012");
  EXPECT_EQ(number_text(-12), "-12.0000");
  EXPECT_EQ(number_text(0), "0.0000");
  EXPECT_EQ(number_text(0.001), "1.0000e-03");
  EXPECT_EQ(number_text(-0.00012), "-1.2000e-04");
  EXPECT_EQ(number_text(std::nan("")), "nan");
}

TEST(ProgressText, Paces) {
  EXPECT_EQ(pace_text(0.0123), "12ms/step");
  EXPECT_EQ(pace_text(0.00085), "850us/step");
  EXPECT_EQ(pace_text(1.53), "1.5s/step");
}

TEST(ProgressText, Durations) {
  EXPECT_EQ(duration_text(0.2), "0:00");
  EXPECT_EQ(duration_text(7), "0:07");
  EXPECT_EQ(duration_text(750), "12:30");
  EXPECT_EQ(duration_text(3 * 3600 + 300), "3:05:00");
}

const ProgressText kText{10, 938, {{"loss", 0.30123}, {"acc", 0.9125}}, 0.12};

TEST(ProgressText, Line) {
  EXPECT_EQ(progress_line(kText), "step  10/938 - loss: 0.3012 - acc: 0.9125 - 12ms/step");
  EXPECT_EQ(progress_line({3, 3, {}, 0.003}), "step 3/3 - 1ms/step");
}

TEST(ProgressText, BarLeavesNoColumnUnusedAndCutsTheRest) {
  EXPECT_EQ(progress_bar({5, 10, {{"loss", 1}}, 5}, 200),
            "step  5/10 [==============>...............] - ETA: 0:05 - loss: 1.0000 - 1.0s/step");
  EXPECT_EQ(progress_bar({10, 10, {}, 1}, 200), "step 10/10 [==============================] - 100ms/step");
  EXPECT_EQ(progress_bar(kText, 80).size(), 80u);
  EXPECT_EQ(progress_bar(kText, 20), "step  10/938 - ETA: ");
}

class Bar : public testing::Test {
 protected:
  trireme::Run run(trireme::Run::Mode mode, RankInfo me = {}) {
    trireme::Run run(model_, me, mode);
    run.epochs = 5;
    run.steps = 20;
    run.samples = 1000;
    run.verbose = 2;
    return run;
  }
  callback::ProgressBar bar(bool terminal = false) {
    return callback::ProgressBar({.out = &text_, .terminal = terminal});
  }
  void train(trireme::Run& run, callback::ProgressBar& bar) {
    bar.on_epoch_begin(run);
    for (run.step = 0; run.step < run.steps; ++run.step) {
      run.logged = (run.step + 1) % 10 == 0;
      run.logs = {{"loss", 0.5}};
      run.reader_seconds += 0.001;
      run.batch_seconds += 0.009;
      bar.on_train_batch_end(run);
    }
  }

  Model model_{torch::nn::Linear(1, 1)};
  std::ostringstream text_;
};

TEST_F(Bar, PrintsLines) {
  trireme::Run one = run(trireme::Run::Mode::train);
  auto progress = bar();
  train(one, progress);
  EXPECT_EQ(text_.str(), "Epoch 1/5\nstep 10/20 - loss: 0.5000 - 10ms/step\nstep 20/20 - loss: 0.5000 - 10ms/step\n");
}

TEST_F(Bar, AddsCosts) {
  trireme::Run one = run(trireme::Run::Mode::train);
  one.verbose = 3;
  one.batch_size = 32;
  one.me = {0, 2};
  auto progress = bar();
  train(one, progress);
  EXPECT_THAT(text_.str(), HasSubstr("avg_reader_cost: 0.00100 sec - avg_batch_cost: 0.00900 sec - ips: 6400.0 "
                                     "samples/sec\n"));
}

TEST_F(Bar, DrawsOverItselfOnATerminal) {
  trireme::Run one = run(trireme::Run::Mode::train);
  one.verbose = 1;
  auto progress = bar(true);
  train(one, progress);
  const std::string text = text_.str();
  EXPECT_THAT(text, HasSubstr("\rstep 10/20 ["));
  EXPECT_THAT(text, HasSubstr("ETA: 0:00"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);  // the title, and the last bar
}

TEST_F(Bar, PrintsLinesWhereThereIsNoTerminal) {
  trireme::Run one = run(trireme::Run::Mode::train);
  one.verbose = 1;
  auto progress = bar(false);
  train(one, progress);
  EXPECT_THAT(text_.str(), Not(HasSubstr("\r")));
  EXPECT_THAT(text_.str(), HasSubstr("step 20/20 - loss"));
}

TEST_F(Bar, IsSilentOnOtherRanksAndWhenTold) {
  trireme::Run other = run(trireme::Run::Mode::train, {1, 2});
  trireme::Run silent = run(trireme::Run::Mode::train);
  silent.verbose = 0;
  auto progress = bar();
  train(other, progress);
  train(silent, progress);
  EXPECT_EQ(text_.str(), "");
}

TEST_F(Bar, TellsOfAnEvaluation) {
  trireme::Run one = run(trireme::Run::Mode::eval);
  auto progress = bar();
  progress.on_eval_begin(one);
  for (one.step = 0; one.step < one.steps; ++one.step) progress.on_eval_batch_end(one);
  one.step = one.steps - 1;
  one.logs = {{"loss", 0.25}};
  progress.on_eval_end(one);
  EXPECT_EQ(text_.str(),
            "Eval begin...\nstep 10/20 - 0us/step\nstep 20/20 - loss: 0.2500 - 0us/step\nEval samples: 1000\n");
}

}  // namespace
}  // namespace trireme
