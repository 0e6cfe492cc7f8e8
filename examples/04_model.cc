// LeNet on Fashion-MNIST with the high-level Model. No line of it knows that there may be several processes.
//
//   $ trireme launch -n 2 build/bin/example_model
//   Epoch 1/3
//   step 20/40 - loss: 1.5573 - acc: 0.4629 - 20ms/step
//   step 40/40 - loss: 1.1664 - acc: 0.5926 - 18ms/step
//   Eval begin...
//   step 8/8 - loss: 0.7007 - acc: 0.7370 - 3ms/step
//   Eval samples: 1000
//   Epoch 2/3
//   step 20/40 - loss: 0.6767 - acc: 0.7445 - 19ms/step
//   step 40/40 - loss: 0.6396 - acc: 0.7618 - 20ms/step
//   Eval begin...
//   step 8/8 - loss: 0.6079 - acc: 0.7740 - 8ms/step
//   Eval samples: 1000
//   Epoch 3/3
//   step 20/40 - loss: 0.5584 - acc: 0.7895 - 19ms/step
//   step 40/40 - loss: 0.5550 - acc: 0.7944 - 17ms/step
//   Eval begin...
//   step 8/8 - loss: 0.5525 - acc: 0.7950 - 11ms/step
//   Eval samples: 1000
//   test accuracy 0.7950, weights in lenet/final.safetensors
#include <trireme/trireme.h>

#include "terminal.h"

using namespace trireme;

int main(int argc, char** argv) try {
  options(argc, argv);
  torch::manual_seed(0);
  const data::FashionMnist train;
  const data::FashionMnist test({.split = data::Split::test});

  Model model(models::lenet(10));
  model.prepare({.optimizer = [](auto parameters) { return optim::Adam(parameters, {.lr = 1e-3}); },
                 .loss = torch::nn::CrossEntropyLoss(),
                 .metrics = {metric::Accuracy()}});
  const Results results = model.fit(
      train, {.eval = test, .batch_size = 64, .epochs = 3, .log_freq = 20, .save_dir = "lenet", .save_freq = 3});

  std::cout << fmt::format("test accuracy {:.4f}, weights in lenet/final.safetensors\n", results.at("eval_acc"));
} catch (const Error& error) {
  std::cerr << error.what() << "\n";
  return error.exit_code();
}
