// `trireme pack --list FILE --root DIR --output FILE`
#include <fmt/format.h>

#include <string>
#include <thread>
#include <vector>

#include "cli/run_main.h"
#include "trireme/core/error.h"
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/data/image/packed.h"

namespace trireme::apps {
namespace {

constexpr int kMaxSide = 1 << 16;
constexpr int kMaxThreads = 1024;

constexpr const char* kAbout =
    "Puts the pictures of a list or folder into one file, from which training reads them faster than from a file "
    "each.\n";

constexpr const char* kNotes =
    "Without --short-side the samples are those of the files, bit for bit. With it no JPEG is decoded any more, and "
    "the\n"
    "file has about four times the bytes. Exit code 0: written; 2: wrong options or list.\n"
    "\nexamples\n"
    "  trireme pack --list train_list.txt --root ILSVRC2012 --output train.pack\n"
    "  trireme train -c ResNet50.yaml -o DataLoader.Train.dataset.packed_file=train.pack\n";

struct Options {
  std::string list, output, delimiter = " ";
  data::PackOptions pack{.threads = static_cast<int>(std::thread::hardware_concurrency())};
};

CommandSyntax syntax_of(Options& options) {
  return {.command = "trireme pack",
          .usage = "--list FILE|--root DIR --output FILE [options]",
          .about = kAbout,
          .notes = kNotes,
          .options = {
              {{"--list"},
               "FILE",
               "which pictures: `path label` a line (default: those of the folder --root, which has a folder for each "
               "class)",
               text_into(options.list)},
              {{"--output"}, "FILE", "what to write, whole or not at all; required", text_into(options.output)},
              {{"--root"},
               "DIR",
               "what the list's paths are relative to (default: the current folder)",
               [&](const Given& given) { options.pack.root = given.text; }},
              {{"--delimiter"}, "CHARACTER", "between path and label (default: a space)", text_into(options.delimiter)},
              {{"--short-side"},
               "N",
               "decode the pictures, and shrink the shorter side to N pixels (default: the files as they are)",
               into(options.pack.short_side, int_in(1, kMaxSide))},
              {{"--threads"},
               "N",
               "that read and decode (default: one for each core)",
               into(options.pack.threads, int_in(1, kMaxThreads))},
          }};
}

data::ImageList pictures(const Options& options) {
  if (options.list.empty()) return data::read_image_folder(options.pack.root);
  return data::read_image_list(options.list, {.delimiter = options.delimiter, .labels_required = false});
}

int run(const std::vector<std::string>& words) {
  Options options;
  const CommandSyntax syntax = syntax_of(options);
  const CommandLine line = parse_command_line(syntax, words);
  if (line.help) {
    fmt::print("{}", help_for(syntax, *line.help));
    return 0;
  }
  if (options.output.empty()) throw UsageError("--output is missing (see: trireme help pack)");
  if (options.list.empty() && options.pack.root.empty())
    throw UsageError("--list and --root are missing, one of which says which pictures (see: trireme help pack)");
  data::pack_images(options.output, pictures(options), options.pack);
  return 0;
}

}  // namespace
}  // namespace trireme::apps

int main(int argc, char** argv) {
  return trireme::run_main([&] { return trireme::apps::run({argv + 1, argv + argc}); });
}
