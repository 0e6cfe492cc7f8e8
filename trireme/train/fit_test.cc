// Model::fit: what it takes, how it stops, and what it leaves behind.
#include <gmock/gmock.h>
#include <signal.h>
#include <torch/torch.h>
#include <unistd.h>

#include <sstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/data/loader.h"
#include "trireme/io/checkpoint/checkpoint.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/model.h"
#include "trireme/train/step.h"
#include "trireme/train/test_model.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Fit, FitsAndEvaluatesByALoader) {
  const data::LoaderOptions order{.batch_size = 7, .shuffle = true, .seed = 0, .workers = 0};
  data::Loader train(points(), order);
  data::Loader test(points(20), {.batch_size = 6});
  Model by_loader = prepared(seeded_net()), by_dataset = prepared(seeded_net());
  const auto bar = std::make_shared<std::ostringstream>();
  const Results results =
      by_loader.fit(train, {.eval = test, .epochs = 3, .callbacks = {callback::ProgressBar({.out = bar.get()})}});
  const Results expected =
      by_dataset.fit(points(), {.eval = points(20), .batch_size = 7, .eval_batch_size = 6, .epochs = 3, .verbose = 0});
  EXPECT_TRUE(flat(by_loader).equal(flat(by_dataset)));
  EXPECT_EQ(results.at("eval_loss"), expected.at("eval_loss"));
  EXPECT_EQ(train.epoch(), 3);
  EXPECT_THAT(bar->str(), HasSubstr("step 9/9"));
  EXPECT_EQ(by_loader.evaluate(test, {.verbose = 0}).at("loss"), results.at("eval_loss"));
  EXPECT_TRUE(
      by_loader.predict(test, {.verbose = 0}).equal(by_loader.predict(points(20), {.batch_size = 6, .verbose = 0})));
}

TEST(Fit, FitsTheRestOfALoadersEpoch) {
  data::Loader first(points(12), {.batch_size = 2});
  int64_t seen = 0;
  std::string state;
  for (auto batch = first.begin(); batch != data::Loader::end(); ++batch)
    if (++seen == 4) state = to_text(first.state());
  data::Loader rest(points(12), {.batch_size = 2});
  rest.load_state(data::parse_sampler_state(state));
  const auto diary = std::make_shared<Diary>();
  Model model = prepared(seeded_net());
  model.fit(std::move(rest), {.epochs = 2, .verbose = 0, .callbacks = {diary}});
  EXPECT_EQ(diary->text, "train{epoch0{0()1(*)}epoch1{0()1()2()3()4()5(*)}}");
}

TEST(Fit, CountsBatchesFromWhereALoaderStands) {
  data::Loader loader(points(12), {.batch_size = 2});
  prepared(seeded_net()).fit(loader, {.verbose = 0, .num_iters = 4});
  data::Loader rest(points(12), {.batch_size = 2});
  rest.load_state(loader.state());
  const auto diary = std::make_shared<Diary>();
  const auto bar = std::make_shared<std::ostringstream>();
  prepared(seeded_net()).fit(rest, {.callbacks = {diary, callback::ProgressBar({.out = bar.get()})}, .num_iters = 6});
  EXPECT_EQ(diary->text, "train{epoch0{0()1(*)}epoch1{0()1()2()3(*)}}");
  EXPECT_THAT(bar->str(), AllOf(HasSubstr("Epoch 1/2"), HasSubstr("Epoch 2/2"), HasSubstr("step 4/6")));
}

TEST(Fit, TakesNoBatchThatItDoesNotTrain) {
  for (const int workers : {0, 1}) {
    data::Loader loader(points(12), {.batch_size = 2, .workers = workers});
    prepared(seeded_net()).fit(loader, {.verbose = 0, .num_iters = 9});
    EXPECT_EQ(loader.state().epoch, 1);
    EXPECT_EQ(loader.state().consumed(), 6);
    data::Loader whole(points(12), {.batch_size = 2, .workers = workers});
    prepared(seeded_net()).fit(whole, {.verbose = 0, .num_iters = 6});
    EXPECT_EQ(whole.state().epoch, 1);
    EXPECT_EQ(whole.state().consumed(), 0);
  }
}

TEST(Fit, RefusesALoaderOfAnotherRank) {
  data::Loader second(points(), {.batch_size = 2}, RankInfo{1, 2});
  EXPECT_THAT([&] { prepared(seeded_net()).fit(second); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("as rank 1 of 2"), HasSubstr("this is rank 0 of 1"))));
}

TEST(Fit, ComesBackFromLowPrecision) {
  TempDir folder;
  Model model(seeded_net());
  const auto prepare = [&](AmpLevel level) {
    model.prepare({.optimizer = sgd(1e-3), .loss = torch::nn::CrossEntropyLoss(), .amp = {.level = level}});
  };
  prepare(AmpLevel::O2);
  model.fit(points(), {.batch_size = 20, .verbose = 0});
  EXPECT_EQ(model.parameters()[0].scalar_type(), torch::kBFloat16);
  model.save(folder.path() / "masters", {.training = false});
  prepare(AmpLevel::O0);
  for (const torch::Tensor& parameter : model.parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
  model.save(folder.path() / "full", {.training = false});
  EXPECT_EQ(read_file(folder.path() / "full.safetensors"), read_file(folder.path() / "masters.safetensors"));
  const torch::Tensor before = flat(model).clone();
  model.fit(points(), {.batch_size = 20, .verbose = 0});
  EXPECT_FALSE(flat(model).equal(before));
}

struct Interrupter : Callback {
  explicit Interrupter(int number) : signal(number) {}
  void on_train_batch_end(trireme::Run& run) override {
    if (run.epoch == 1 && run.step == 1) ::raise(signal);
  }
  int signal;
};

void fit_interrupted(int number, const std::filesystem::path& save_dir) {
  prepared(seeded_net())
      .fit(points(), {.batch_size = 10,
                      .epochs = 3,
                      .save_dir = save_dir,
                      .verbose = 0,
                      .shuffle = false,
                      .num_workers = 0,
                      .callbacks = {Interrupter(number)}});
}

std::filesystem::path folder_of(pid_t test) {
  return std::filesystem::path(testing::TempDir()) / fmt::format("trireme_interrupted_fit_{}", test);
}

// The child runs the test from its start, so that nothing but the name of the folder tells it where its parent looks.
TEST(FitDeathTest, SavesBeforeASignalEndsIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::filesystem::path out = folder_of(::getpid());
  std::filesystem::remove_all(out);
  EXPECT_EXIT(fit_interrupted(SIGTERM, folder_of(::getppid())), testing::KilledBySignal(SIGTERM),
              "step 3/6: ends by SIGTERM");
  EXPECT_TRUE(std::filesystem::exists(out / "0.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(out / "1.safetensors")) << "an epoch that was not finished";
  EXPECT_FALSE(std::filesystem::exists(out / "final.safetensors"));
  Model loaded = prepared(seeded_net()), expected = prepared(seeded_net());
  loaded.load(out / "interrupted");
  expected.fit(points(), {.batch_size = 10, .verbose = 0, .shuffle = false, .num_iters = 9});
  EXPECT_TRUE(flat(loaded).equal(flat(expected)));
  std::filesystem::remove_all(out);
}

TEST(FitDeathTest, WithNothingToSaveEndsAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fit_interrupted(SIGINT, {}), testing::KilledBySignal(SIGINT), "");
}

TEST(Fit, LeavesSignalsToAProgramThatHandlesThem) {
  const TempDir folder;
  static volatile sig_atomic_t came = 0;
  const auto before = ::signal(SIGINT, [](int) { came = 1; });
  const auto diary = std::make_shared<Diary>();
  prepared(seeded_net())
      .fit(points(4), {.batch_size = 2,
                       .epochs = 2,
                       .save_dir = folder.path(),
                       .verbose = 0,
                       .callbacks = {Interrupter(SIGINT), diary}});
  ::signal(SIGINT, before);
  EXPECT_EQ(came, 1);
  EXPECT_EQ(diary->text, "train{epoch0{0()1(*)}epoch1{0()1(*)}}");
}

TEST(Fit, StopsAfterSoManyBatches) {
  const auto diary = std::make_shared<Diary>();
  Model model = prepared(seeded_net());
  model.fit(points(6), {.batch_size = 2, .epochs = 1, .verbose = 0, .callbacks = {diary}, .num_iters = 4});
  EXPECT_EQ(diary->text, "train{epoch0{0()1()2(*)}epoch1{0(*)}}");
}

TEST(Fit, AccumulatesToTheSameStep) {
  // Batch normalisation would see other batches.
  const auto fitted = [](const FitOptions& options) {
    torch::manual_seed(5);
    Model model(torch::nn::Linear(4, 3));
    model.prepare(sgd(0.1), torch::nn::CrossEntropyLoss());
    model.fit(points(50), options);
    return flat(model);
  };
  const torch::Tensor large = fitted({.batch_size = 12, .epochs = 2, .verbose = 0});
  // 50 = 4 x 12 + 2: the last step of an epoch is smaller.
  EXPECT_TRUE(
      fitted({.batch_size = 4, .epochs = 2, .verbose = 0, .accumulate_grad_batches = 3}).allclose(large, 1e-5, 1e-6));
  EXPECT_FALSE(fitted({.batch_size = 4, .epochs = 2, .verbose = 0}).allclose(large, 1e-5, 1e-6));
}

/// Averaged, clipped, with dropout.
struct ResumedFit {
  explicit ResumedFit(std::filesystem::path folder) : checkpoints(std::move(folder)) {}

  torch::Tensor operator()(FitOptions options) const {
    torch::manual_seed(5);
    Model model(torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                                      torch::nn::Linear(8, 3)));
    model.prepare({.optimizer = [](auto parameters) { return optim::Momentum(parameters, {.lr = 0.1}); },
                   .loss = torch::nn::CrossEntropyLoss(),
                   .clip_norm = 0.5,
                   .ema_decay = 0.9});
    options.eval = eval;
    options.batch_size = 8;
    options.verbose = 0;
    options.checkpoint_dir = checkpoints;
    model.fit(train, options);
    return torch::cat({flat(model), model.predict(eval, {.verbose = 0}).reshape({-1})});
  }

  std::filesystem::path checkpoints;
  data::TensorDataset train = points(50), eval = points(20);
};

TEST(Fit, ResumesWithTheBitsOfAnUnbrokenFit) {
  const TempDir folder;
  const auto options = [](int64_t epochs) {
    return FitOptions{.epochs = epochs,
                      .callbacks = {callback::ReduceLROnPlateau({.factor = 0.5, .patience = 1, .min_delta = 0.05})},
                      .accumulate_grad_batches = 4};
  };
  const torch::Tensor whole = ResumedFit(folder.path() / "a")(options(5));
  const ResumedFit fit(folder.path() / "b");
  EXPECT_FALSE(fit(options(1)).equal(whole));
  EXPECT_FALSE(fit(options(3)).equal(whole));
  EXPECT_TRUE(fit(options(5)).equal(whole));
  EXPECT_TRUE(fit(options(5)).equal(whole)) << "nothing is left to do";
}

TEST(Fit, ResumesInTheMiddleOfAnEpoch) {
  const TempDir folder;
  const torch::Tensor whole = ResumedFit(folder.path() / "a")({.num_iters = 21});
  const ResumedFit fit(folder.path() / "b");
  for (const int64_t iters : {3, 12, 16}) EXPECT_FALSE(fit({.num_iters = iters}).equal(whole));
  EXPECT_TRUE(fit({.num_iters = 21}).equal(whole));
}

TEST(Fit, ShowsADamagedStateOfACheckpoint) {
  for (const char* damaged : {"", "many training", "12", "12 sleeping"}) {
    const TempDir folder;
    Net net = seeded_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    train::Step step(net, optimizer);
    data::Loader loader(points(), {.batch_size = 10, .shuffle = true});
    TrainingState state = step.state();
    state.loader = loader;
    state.extra.emplace_back(
        "fit", [&] { return damaged; }, [](const std::string&) {});
    state.extra.emplace_back(
        "callbacks", [] { return ""; }, [](const std::string&) {});
    Checkpoint(folder.path()).save(state);
    EXPECT_THAT([&] { prepared(net).fit(points(), {.batch_size = 10, .checkpoint_dir = folder.path(), .verbose = 0}); },
                ThrowsMessage<UsageError>(HasSubstr(fmt::format("has '{}' where the state of a fit", damaged))));
  }
}

TEST(Fit, DoesNotGoOnAfterACallbackStoppedIt) {
  const TempDir folder;
  const auto fitted = [&] {
    Model model = prepared(seeded_net(), 0);
    const auto diary = std::make_shared<Diary>();
    model.fit(points(), {.eval = points(20),
                         .batch_size = 30,
                         .epochs = 9,
                         .checkpoint_dir = folder.path(),
                         .verbose = 0,
                         .callbacks = {callback::EarlyStopping({.patience = 2, .min_delta = 10}), diary}});
    return diary->text;
  };
  EXPECT_THAT(fitted(), HasSubstr("epoch2{"));
  EXPECT_EQ(fitted(), "train{}");
}

TEST(Fit, ACallbackStopsTraining) {
  struct Stopper : Callback {
    void on_train_batch_end(trireme::Run& run) override { run.stop = run.stop || run.step == 1; }
  };
  const auto diary = std::make_shared<Diary>();
  Model model = prepared(seeded_net());
  model.fit(points(12), {.batch_size = 2, .epochs = 3, .log_freq = 3, .verbose = 0, .callbacks = {Stopper(), diary}});
  EXPECT_EQ(diary->text, "train{epoch0{0()1()2(*)}}");
}

TEST(Fit, ALossThatIsNoNumberEndsTraining) {
  TempDir folder;
  torch::Tensor x = torch::randn({40, 4});
  Model model = prepared(seeded_net());
  model.fit(data::TensorDataset(x, torch::zeros({40}, torch::kLong)),
            {.batch_size = 4, .save_dir = folder.path(), .verbose = 0});
  x[25] = std::nan("");
  EXPECT_THAT(
      [&] {
        model.fit(
            data::TensorDataset(x, torch::zeros({40}, torch::kLong)),
            {.batch_size = 4, .epochs = 3, .log_freq = 5, .save_dir = folder.path(), .verbose = 0, .shuffle = false});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("epoch 1/3, step 7/10"), HasSubstr("rank 0 is nan"),
                                      HasSubstr(folder.path().string()), HasSubstr("learning rate"))));
  Model again = prepared(seeded_net());
  again.load(folder.path() / "final");
  EXPECT_TRUE(flat(again).isfinite().all().item<bool>());
}

// The ranks agree to stop in the middle of a group; the batch that completes it is bad, and no step looks at it.
TEST(Fit, ABadLossAfterTheAgreementToStopIsNotSaved) {
  struct Stopper : Callback {
    void on_train_batch_end(trireme::Run& run) override { run.stop = run.stop || run.step == 1; }
  };
  TempDir folder;
  torch::Tensor x = torch::randn({40, 4});
  x[13] = std::nan("");  // of the fourth batch
  Model model = prepared(seeded_net());
  EXPECT_THAT(
      [&] {
        model.fit(data::TensorDataset(x, torch::zeros({40}, torch::kLong)), {.batch_size = 4,
                                                                             .log_freq = 3,
                                                                             .save_dir = folder.path(),
                                                                             .verbose = 0,
                                                                             .shuffle = false,
                                                                             .callbacks = {Stopper()},
                                                                             .accumulate_grad_batches = 2});
      },
      ThrowsMessage<UsageError>(HasSubstr("step 4/10: the loss of rank 0 is nan")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace trireme
