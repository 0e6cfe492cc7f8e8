// Checkpoints of GPT: from every layout into every other, on as many ranks or others, and after a rank was killed.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <variant>

#include "gpt_training.h"
#include "trireme/io/checkpoint/training_state.h"
#include "trireme/io/checkpoint_folder.h"

namespace trireme::test {
namespace {

using AnyLayout = std::variant<GptLayout, GptPipeline>;

template <typename Use>
void with_training(const World& world, const AnyLayout& layout, const Use& use) {
  if (const auto* whole = std::get_if<GptLayout>(&layout)) {
    GptTraining training(world, *whole);
    use(training, whole->text());
  } else {
    PipedGpt training(world, std::get<GptPipeline>(layout));
    use(training, std::get<GptPipeline>(layout).text());
  }
}

// Of data, model, pipe and what is split over data.
std::vector<AnyLayout> every_layout(const World& world) {
  std::vector<AnyLayout> all;
  for (const int model : degrees(world))
    for (const std::optional<Shard> shard : {std::optional<Shard>(), std::optional(Shard::optimizer),
                                             std::optional(Shard::gradients), std::optional(Shard::parameters)})
      if (!shard || model < world.size()) all.push_back(GptLayout{model, shard, model > 1});
  for (const GptPipeline& layout : gpt_pipeline_layouts(world))
    if (layout.stages > 1 && layout.schedule == Schedule::one_f_one_b) all.push_back(layout);
  return all;
}

std::string checkpoint_of_layout(const std::string& folder, size_t layout) {
  return fmt::format("{}/{}", folder, layout);
}

// Each layout trains on other texts, so that none has the values of another.
void save_in_every_layout(const World& world, const std::string& folder) {
  const std::vector<AnyLayout> all = every_layout(world);
  for (size_t i = 0; i < all.size(); ++i)
    with_training(world, all[i], [&](auto& training, const std::string&) {
      const int first = 10 * static_cast<int>(i);
      training.run(first, first + 3);
      Checkpoint(checkpoint_of_layout(folder, i), world).save(training.state(), {.step = 3});
    });
}

// On rank 0: what was restored is what the files have, bit for bit.
void require_saved_bits(const io::Snapshot& got, const std::string& folder, const std::string& what) {
  for (const char* file : {"model", "optimizer"}) {
    const io::TensorMap saved =
        io::load_safetensors(std::filesystem::path(folder) / "step_000000003" / fmt::format("{}.safetensors", file));
    const io::TensorMap& mine = got.tensors.at(file);
    require(saved.size() == mine.size() && saved.size() > 20,
            fmt::format("{}: {} and {} tensors in {}", what, mine.size(), saved.size(), file));
    for (const auto& item : saved)
      require(mine.contains(item.key()) && mine[item.key()].cpu().equal(item.value()),
              fmt::format("{}: other bits of {}", what, item.key()));
  }
}

// All that another world, or this one, has saved.
void load_in_every_layout(const World& world, const std::string& folder) {
  size_t pairs = 0;
  for (const AnyLayout& to : every_layout(world))
    with_training(world, to, [&](auto& training, const std::string& what) {
      for (size_t from = 0; std::filesystem::exists(checkpoint_of_layout(folder, from)); ++from) {
        if (!all_layouts_wanted() && pairs++ % 7 != 0) continue;
        Checkpoint(checkpoint_of_layout(folder, from), world).restore(training.state());
        const io::Snapshot got = detail::take(training.state());
        if (world.rank() == 0)
          require_saved_bits(got, checkpoint_of_layout(folder, from), fmt::format("{} from layout {}", what, from));
      }
    });
}

// Saved in each layout, loaded in each other: the same bits, parameters and optimizer states.
void gpt_checkpoints(const World& world) {
  const std::string folder = broadcast_object(fmt::format("gpt_checkpoints.{}", getpid()), 0, world);
  save_in_every_layout(world, folder);
  load_in_every_layout(world, folder);
  barrier(world);
  if (world.rank() == 0) std::filesystem::remove_all(folder);
}
void gpt_save(const World& world) {
  save_in_every_layout(world, setting("TRIREME_TEST_FOLDER"));
}
void gpt_load(const World& world) {
  load_in_every_layout(world, setting("TRIREME_TEST_FOLDER"));
}

// Files of earlier versions had the copies of tied weights beside their owners.
void gpt_pipeline_old_files(const World& world) {
  const int stages = std::min(degrees(world).back(), 4);
  PipedGpt piped(world, {stages, 1});
  GptTraining whole(world, {});
  whole.run(0, 1);
  io::TensorMap old = detail::take(whole.state()).tensors.at("model");
  old.insert("head.tokens.weight", torch::zeros_like(old["embedding.tokens.weight"]));
  detail::load_weights(*piped.pipe, old, {});
  for (const auto& item : piped.pipe->named_parameters())
    if (item.key() == "head.tokens.weight")
      require(item.value().equal(old["embedding.tokens.weight"]), "the head has not the embedding's weights");
}

// --- a killed rank

AnyLayout layout_named(const std::string& name) {
  if (name == "model") return GptLayout{.model = 2, .shard = Shard::parameters};
  if (name == "pipe") return GptPipeline{2, 1, Schedule::one_f_one_b, Shard::gradients};
  require(name == "whole", name);
  return GptLayout{};
}

// Goes on from the newest checkpoint of TRIREME_TEST_FOLDER, and saves after steps 4 and 8. In the last step rank
// TRIREME_TEST_VICTIM dies, where the others wait for it in the forward. Who ends has what one process has.
void gpt_killed(const World& world) {
  const std::string folder = setting("TRIREME_TEST_FOLDER");
  with_training(world, layout_named(setting("TRIREME_TEST_LAYOUT")), [&](auto& training, const std::string& what) {
    Checkpoint checkpoint(folder, world);
    for (int step = static_cast<int>(checkpoint.restore(training.state()).step); step < kGptSteps;) {
      if (step == kGptSteps - 1 && setting("TRIREME_TEST_VICTIM") == std::to_string(world.rank())) {
        std::ofstream(folder + ".died") << step;
        ::raise(SIGKILL);
      }
      training.run(step, step + 1);
      if (++step % 4 == 0) checkpoint.save(training.state(), {.step = step});
    }
    require_like(world, training.whole(), gpt_of_one_process(world), 1e-8, what);
  });
}

}  // namespace

std::vector<Case> gpt_file_cases() {
  return {{"gpt_checkpoints", gpt_checkpoints}, {"gpt_pipeline_old_files", gpt_pipeline_old_files}};
}

std::vector<Case> gpt_alone_cases() {
  return {{"gpt_save", gpt_save}, {"gpt_load", gpt_load}, {"gpt_killed", gpt_killed}};
}

}  // namespace trireme::test
